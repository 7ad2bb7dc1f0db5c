// SPDX-License-Identifier: BSD-3-Clause

package scenario

import "github.com/goverbs/goverbs/verbs"

// Row 2: a completion means that the data have arrived.
var confirmation = []*Scenario{
	{Name: "row02/write-placed", run: func(p *program) {
		a, b := p.pair(config{memory: 1 << 20})
		for i := range byte(8) {
			a.fill(0, 256<<10, i)
			a.post(id(uint64(i)+1, verbs.Write(b.remote(0), a.sge(0, 256<<10))))
			a.sent(1)
			b.memory(0, 256<<10) // immediately
		}
	}},
	{Name: "row02/send-placed", run: func(p *program) {
		a, b := p.pair(config{memory: 1 << 20})
		for i := range byte(8) {
			n := 16 << (2 * i) // 16 bytes to 256 KiB
			b.recv(uint64(i), 0, 512<<10)
			a.fill(0, n, i)
			a.post(id(uint64(i)+1, verbs.Send(a.sge(0, n))))
			a.sent(1)
			b.memory(0, n)
			b.received(1)
		}
	}},
	{Name: "row02/one-for-all", run: func(p *program) {
		// Only the last of 32 Writes is signaled, and it confirms them all.
		a, b := p.pair(config{})
		a.fill(0, 32<<10, 5)
		var list []verbs.SendWR
		for i := range 32 {
			list = append(list, quiet(verbs.Write(b.remote(i<<10), a.sge(i<<10, 1<<10))))
		}
		list[31].Flags |= verbs.SendSignaled
		a.post(list...)
		a.sent(1)
		b.memory(0, 32<<10)
		a.empty("sent", a.scq)
	}},
	{Name: "row02/large", run: func(p *program) {
		const size = 64 << 20
		a, b := p.pair(config{memory: size})
		a.fill(0, size, 9)
		a.post(verbs.Write(b.remote(0), a.sge(0, size)))
		a.sent(1)
		b.memory(0, size)
		b.fill(0, size, 0)
		b.recv(1, 0, size)
		a.post(id(2, verbs.SendImm(7, a.sge(0, size))))
		a.sent(1)
		b.received(1)
		b.memory(0, size)
		a.fill(0, size, 0)
		a.post(id(3, verbs.Read(b.remote(0), a.sge(0, size))))
		a.sent(1)
		a.memory(0, size)
	}},
	{Name: "row02/not-placed", run: func(p *program) {
		// A refused Write never succeeds, even though the transport accepted its data.
		a, b := p.pair(config{})
		a.fill(0, 4096, 3)
		a.post(verbs.Write(b.wrongKey(0), a.sge(0, 4096)))
		a.sent(1)
		a.ended()
		b.ended()
		b.memory(0, 4096)
	}},
}

// Row 19: the QP's access rights for its peer, in addition to those of the memory. Row 20: a
// request with an invalid local source or sink fails after those before it were confirmed.
var access = []*Scenario{
	{Name: "row19/qp-allows", run: func(p *program) {
		a, b := p.pair(config{})
		b.accessFlags(verbs.AccessRemoteWrite)
		a.put(0, "allowed")
		a.post(verbs.Write(b.remote(0), a.sge(0, 7)))
		a.sent(1)
		b.memory(0, 8)
	}},
	{Name: "row19/qp-denies-write",
		run: func(p *program) { denied(p, verbs.AccessRemoteRead|verbs.AccessRemoteAtomic, 0) }},
	{Name: "row19/qp-denies-read",
		run: func(p *program) { denied(p, verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic, 1) }},
	{Name: "row19/qp-denies-atomic",
		run: func(p *program) { denied(p, verbs.AccessRemoteWrite|verbs.AccessRemoteRead, 2) }},
	{Name: "row20/good-source", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "source")
		a.post(verbs.Write(b.remote(0), a.sge(0, 3), a.sge(3, 3)))
		a.sent(1)
		b.memory(0, 8)
	}},
	{Name: "row20/bad-source", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "before")
		bad := a.sge(0, 6)
		bad.LKey ^= 0x5a5a5a00
		b.recv(1, 64, 64)
		b.recv(2, 128, 64)
		a.post(verbs.Write(b.remote(0), a.sge(0, 6)), verbs.Send(a.sge(0, 6)), verbs.Send(bad),
			verbs.Write(b.remote(32), a.sge(0, 6)))
		a.sent(4)
		b.received(2)
		b.memory(0, 192)
	}},
	{Name: "row20/bad-sink", run: func(p *program) {
		a, b := p.pair(config{})
		b.put(0, "read")
		bad := a.sge(0, 4)
		bad.LKey ^= 0x5a5a5a00
		a.post(verbs.Write(b.remote(32), a.sge(0, 4)), verbs.Read(b.remote(0), bad),
			verbs.Write(b.remote(64), a.sge(0, 4)))
		a.sent(3)
	}},
}

// denied posts a Write, a Read or an atomic that the peer's memory allows but its QP does not.
func denied(p *program, flags verbs.AccessFlags, which int) {
	a, b := p.pair(config{})
	b.accessFlags(flags)
	a.recv(9, 64, 64)
	b.post(verbs.Send(b.sge(64, 5))) // announces the rights to the peer
	a.received(1)
	b.sent(1)
	a.put(0, "not this")
	a.post([]verbs.SendWR{verbs.Write(b.remote(0), a.sge(0, 8)), verbs.Read(b.remote(0), a.sge(0, 8)),
		verbs.FetchAdd(b.remote(0), 1, a.sge(0, 8))}[which])
	a.sent(1)
	a.ended()
	b.ended()
	a.memory(0, 8)
	b.memory(0, 8)
}

// accessFlags changes the end's QP access rights for its peer.
func (e *end) accessFlags(flags verbs.AccessFlags) {
	e.called("Modify", 0, e.qp.Modify(verbs.QPAttr{AccessFlags: flags}, verbs.QPAttrAccessFlags))
}
