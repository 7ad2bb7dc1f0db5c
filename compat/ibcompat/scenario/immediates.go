// SPDX-License-Identifier: BSD-3-Clause

package scenario

import "github.com/goverbs/goverbs/verbs"

// Row 4: Write with immediate. Row 5: Send with immediate.
var immediates = []*Scenario{
	{Name: "row04/write-imm", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "hello, memory")
		for i, n := range []int{13, 0, 1, 4096, 16384} {
			b.recv(uint64(i), 0, 0)
			a.post(id(uint64(i)+1, verbs.WriteImm(b.remote(1024*i), 0x01020304<<i, a.sge(0, n))))
			a.sent(1)
			b.received(1)
		}
		b.memory(0, 32<<10)
	}},
	{Name: "row04/among-sends", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "abcdefgh")
		for i := range 4 {
			b.recv(uint64(i), 256+16*i, 16)
		}
		a.post(verbs.Send(a.sge(0, 2)), verbs.WriteImm(b.remote(0), 5, a.sge(2, 2)), verbs.SendImm(6, a.sge(4, 2)),
			quiet(verbs.WriteImm(b.remote(8), 0xffffffff, a.sge(6, 2))))
		b.received(4)
		a.sent(3)
		b.memory(0, 16)
		b.memory(256, 64)
	}},
	{Name: "row04/write-imm-waits", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "waits")
		a.post(verbs.WriteImm(b.remote(0), 1, a.sge(0, 5)))
		p.pause()
		a.empty("sent", a.scq)
		b.recv(7, 64, 16)
		b.received(1)
		a.sent(1)
		b.memory(0, 80)
	}},
	{Name: "row04/write-imm-denied", Reduced: "of the receive, that it fails: rxe has a status of its own there",
		run: func(p *program) {
			a, b := p.pair(config{})
			b.recv(7, 64, 16)
			a.post(verbs.WriteImm(b.wrongKey(0), 1, a.sge(0, 5)))
			a.sent(1)
			wc := b.next("received", b.rcq)
			p.fact("receive", "%d fails: %v", wc.ID, wc.Status != verbs.WCSuccess)
			b.memory(0, 80)
		}},
	{Name: "row05/send-imm", run: func(p *program) {
		a, b := p.pair(config{memory: 256 << 10})
		a.fill(0, 100000, 2)
		for i, n := range []int{0, 1, 64, 4096, 4097, 100000} {
			b.recv(uint64(i), 0, n)
			b.recv(uint64(100+i), 0, 0) // not consumed by the immediate
			a.post(id(uint64(i)+1, verbs.SendImm(uint32(i)<<24|0xabc, a.sge(0, n))))
			a.sent(1)
			b.received(1)
			b.memory(0, n)
			a.post(id(uint64(i)+11, verbs.Send()))
			a.sent(1)
			b.received(1)
		}
	}},
	{Name: "row05/send-imm-too-long", run: func(p *program) {
		a, b := p.pair(config{})
		b.recv(1, 0, 15)
		a.post(verbs.SendImm(9, a.sge(0, 16)))
		a.sent(1)
		b.received(1)
		a.ended()
		b.ended()
	}},
}

// Row 14: a message that is longer than its receive.
var lengths = []*Scenario{
	{Name: "row14/fits", run: func(p *program) {
		a, b := p.pair(config{})
		a.fill(0, 32<<10, 4)
		for i, n := range []int{0, 1, 100, 4096, 32 << 10} {
			b.recv(uint64(i), 0, n)
			a.post(id(uint64(i)+1, verbs.Send(a.sge(0, n))))
			a.sent(1)
			b.received(1)
			b.memory(0, n)
		}
	}},
	{Name: "row14/too-long", run: func(p *program) { tooLong(p, 63, 64) }},
	{Name: "row14/too-long-for-none", run: func(p *program) { tooLong(p, 0, 1) }},
	{Name: "row14/large-too-long", run: func(p *program) { tooLong(p, 30000, 30001) }},
}

// tooLong sends a message of n bytes to a shorter receive, followed by another message.
func tooLong(p *program, room, n int) {
	a, b := p.pair(config{})
	b.recv(1, 0, room)
	b.recv(2, 0, 64)
	a.post(verbs.Send(a.sge(0, n)), verbs.Send(a.sge(0, 1)))
	a.sent(2)
	b.received(2)
	a.ended()
	b.ended()
}
