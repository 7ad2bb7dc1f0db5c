// SPDX-License-Identifier: BSD-3-Clause

package scenario

import "github.com/goverbs/goverbs/verbs"

// Row 3: a failed request has the reason as its status, and later ones are flushed. Row 16: so are
// requests posted afterwards.
var failures = []*Scenario{
	{Name: "row03/earlier-succeeds", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "good")
		a.post(verbs.Write(b.remote(0), a.sge(0, 4)))
		a.sent(1)
		a.post(id(2, verbs.Write(b.wrongKey(0), a.sge(0, 4))))
		a.sent(1)
		b.memory(0, 8)
	}},
	{Name: "row03/write-denied", run: func(p *program) {
		a, b := p.pair(config{})
		a.fill(0, 64, 1)
		behind(a, b, verbs.Write(b.wrongKey(0), a.sge(0, 64)))
	}},
	{Name: "row03/read-denied", run: func(p *program) {
		a, b := p.pair(config{})
		behind(a, b, verbs.Read(b.wrongKey(0), a.sge(0, 64)))
	}},
	{Name: "row03/atomic-denied", run: func(p *program) {
		a, b := p.pair(config{})
		behind(a, b, verbs.FetchAdd(b.wrongKey(0), 1, a.sge(0, 8)))
	}},
	{Name: "row03/out-of-bounds", run: func(p *program) {
		a, b := p.pair(config{})
		beyond := b.remote(64<<10 - 32)
		beyond.Length = 64 // beyond the region: a peer may claim anything
		behind(a, b, verbs.Write(beyond, a.sge(0, 64)))
	}},
	{Name: "row16/post-to-good", run: func(p *program) {
		a, b := p.pair(config{})
		b.recv(1, 0, 16)
		a.post(verbs.Send(a.sge(0, 8)))
		a.sent(1)
		b.received(1)
	}},
	{Name: "row16/post-after-failure", run: func(p *program) {
		a, b := p.pair(config{})
		a.post(verbs.Write(b.wrongKey(0), a.sge(0, 64)))
		a.sent(1)
		a.post(id(2, verbs.Send(a.sge(0, 8))), id(3, verbs.Read(b.remote(0), a.sge(0, 8))),
			id(4, verbs.FetchAdd(b.remote(0), 1, a.sge(0, 8))))
		a.sent(3)
		a.recv(5, 0, 8)
		a.received(1)
		b.ended()
		b.recv(6, 0, 8)
		b.received(1)
	}},
}

// behind posts a request that fails and others after it, which are flushed, as are the receives of
// both ends.
func behind(a, b *end, bad verbs.SendWR) {
	a.recv(11, 128, 64)
	b.recv(21, 128, 64)
	a.post(bad, verbs.Write(b.remote(64), a.sge(0, 8)), verbs.Read(b.remote(0), a.sge(0, 8)), verbs.Send(a.sge(0, 8)))
	a.sent(4)
	a.ended()
	b.ended()
	a.received(1)
	b.received(1)
	b.memory(0, 192)
}
