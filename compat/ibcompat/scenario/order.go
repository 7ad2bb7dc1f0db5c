// SPDX-License-Identifier: BSD-3-Clause

package scenario

import "github.com/goverbs/goverbs/verbs"

// Row 8: the order in which requests take effect. Row 13: the fence. Row 15: completions arrive in
// posting order.
var order = []*Scenario{
	{Name: "row08/one-after-the-other", run: func(p *program) {
		a, b := p.pair(config{})
		a.putWord(0, 40)
		a.putWord(8, 50)
		b.recv(1, 256, 64)
		a.post(verbs.Write(b.remote(0), a.sge(0, 8)), verbs.FetchAdd(b.remote(0), 2, a.sge(16, 8)),
			verbs.Write(b.remote(8), a.sge(8, 8)), verbs.CmpSwap(b.remote(8), 50, 51, a.sge(24, 8)),
			verbs.Send(a.sge(0, 16)))
		a.sent(5)
		b.received(1)
		a.words(16, 24)
		b.words(0, 8, 256, 264)
	}},
	{Name: "row08/read-of-write", run: func(p *program) {
		a, b := p.pair(config{})
		for i := range 16 {
			a.putWord(0, uint64(i+100))
			a.post(quiet(verbs.Write(b.remote(0), a.sge(0, 8))), verbs.Read(b.remote(0), a.sge(8, 8)))
			a.sent(1)
			a.words(8)
		}
	}},
	{Name: "row08/write-behind-read", run: func(p *program) {
		// Without the fence the Read could return what the Write stores.
		a, b := p.pair(config{})
		b.fill(0, 16<<10, 1)
		a.fill(0, 16<<10, 2)
		a.post(verbs.Read(b.remote(0), a.sge(16<<10, 16<<10)),
			with(verbs.SendFence, verbs.Write(b.remote(0), a.sge(0, 16<<10))))
		a.sent(2)
		a.memory(16<<10, 16<<10)
		b.memory(0, 16<<10)
	}},
	{Name: "row08/behind-failure", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "must not arrive")
		b.recv(1, 256, 64)
		a.post(verbs.FetchAdd(b.wrongKey(0), 1, a.sge(64, 8)), verbs.CmpSwap(b.remote(0), 0, 1, a.sge(64, 8)),
			verbs.Send(a.sge(0, 15)))
		a.sent(3)
		b.received(1)
		b.memory(0, 512)
	}},
	{Name: "row13/fenced", run: func(p *program) {
		a, b := p.pair(config{})
		b.put(0, "abcdefgh")
		a.put(64, "ABCDEFGH")
		a.post(verbs.Read(b.remote(0), a.sge(0, 8)), with(verbs.SendFence, verbs.Write(b.remote(0), a.sge(64, 8))),
			with(verbs.SendFence, verbs.Read(b.remote(0), a.sge(8, 8))),
			with(verbs.SendFence, verbs.FetchAdd(b.remote(8), 1, a.sge(16, 8))),
			with(verbs.SendFence, verbs.Read(b.remote(8), a.sge(24, 8))))
		a.sent(5)
		a.memory(0, 32)
		b.memory(0, 16)
	}},
	{Name: "row13/fenced-behind-failure", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "must not arrive")
		a.post(verbs.Read(b.wrongKey(0), a.sge(64, 8)), with(verbs.SendFence, verbs.Write(b.remote(0), a.sge(0, 15))),
			with(verbs.SendFence, verbs.Read(b.remote(0), a.sge(64, 8))))
		a.sent(3)
		b.memory(0, 16)
	}},
	{Name: "row15/mixed", run: func(p *program) {
		a, b := p.pair(config{})
		for i := range 12 {
			b.recv(uint64(i), 4096+64*i, 64)
		}
		a.fill(0, 4096, 6)
		var list []verbs.SendWR
		for i := range 6 {
			list = append(list, verbs.Read(b.remote(0), a.sge(8192, 2048)),
				verbs.Write(b.remote(64*i), a.sge(64*i, 64)), verbs.SendImm(uint32(i), a.sge(i, 7)),
				verbs.FetchAdd(b.remote(2048), 1, a.sge(4096, 8)), verbs.Send(a.sge(0, 64)))
		}
		a.post(list...)
		a.sent(30)
		b.received(12)
		b.memory(0, 8192)
	}},
	{Name: "row15/unsignalled", run: func(p *program) {
		a, b := p.pair(config{})
		b.recv(1, 4096, 64)
		var list []verbs.SendWR
		for i := range 20 {
			wr := quiet(verbs.Write(b.remote(64*i), a.sge(64*i, 64)))
			switch {
			case i == 7:
				wr = quiet(verbs.Send(a.sge(0, 9)))
			case i%5 == 4:
				wr.Flags |= verbs.SendSignaled
			}
			list = append(list, wr)
		}
		a.post(list...)
		a.sent(4)
		a.empty("sent", a.scq)
		b.received(1)
	}},
	{Name: "row15/unsignalled-fail", run: func(p *program) {
		// A failed request has a completion, signaled or not.
		a, b := p.pair(config{})
		a.post(quiet(verbs.Read(b.wrongKey(0), a.sge(0, 8))), quiet(verbs.Write(b.remote(0), a.sge(0, 8))),
			quiet(verbs.Send(a.sge(0, 8))))
		a.sent(3)
	}},
}

// Row 9: requests with several elements.
var elements = []*Scenario{
	{Name: "row09/read-scatters", run: func(p *program) {
		a, b := p.pair(config{})
		b.fill(0, 12000, 3)
		a.post(verbs.Read(b.remote(0), a.sge(20000, 1), a.sge(0, 5000), a.sge(10000, 0), a.sge(5000, 6999)),
			verbs.Read(b.remote(1), a.sge(30000, 10), a.sge(30020, 10)))
		a.sent(2)
		a.memory(0, 12000)
		a.memory(20000, 1)
		a.memory(30000, 30)
	}},
	{Name: "row09/sends-gather", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "gathered and scattered")
		wr := verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.sge(0, 3), b.sge(100, 4), b.sge(200, 50)}}
		n, err := b.qp.PostRecv([]verbs.RecvWR{wr})
		b.called("PostRecv", n, err)
		a.post(verbs.Send(a.sge(0, 8), a.sge(8, 0), a.sge(8, 14)), verbs.Write(b.remote(300), a.sge(9, 3), a.sge(0, 8)))
		a.sent(2)
		b.received(1)
		b.memory(0, 320)
	}},
	{Name: "row09/too-many", run: func(p *program) {
		a, b := p.pair(config{})
		most := a.qp.Cap().MaxSendSGE
		sgl := make([]verbs.SGE, most+1)
		for i := range sgl {
			sgl[i] = a.sge(i, 1)
		}
		a.post(verbs.Read(b.remote(0), sgl...))
		a.post(verbs.Send(sgl...))
		a.empty("sent", a.scq)
		a.post(verbs.Read(b.remote(0), sgl[:4]...))
		a.sent(1)
	}},
	{Name: "row09/one-is-bad", run: func(p *program) {
		a, b := p.pair(config{})
		bad := a.sge(64, 8)
		bad.LKey ^= 0x5a5a5a00
		a.post(verbs.Read(b.remote(0), a.sge(0, 8), bad), verbs.Write(b.remote(64), a.sge(0, 8)))
		a.sent(2)
	}},
}
