// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Row 1: a Send without a posted receive waits for as long as the receiver has configured.
var waiting = []*Scenario{
	{Name: "row01/rnr-wait", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "one two three")
		a.post(verbs.Send(a.sge(0, 3)), verbs.Send(a.sge(4, 3)), verbs.Send(a.sge(8, 5)))
		p.pause()
		for i := range 3 {
			b.recv(uint64(i), 16*i, 16)
		}
		b.received(3)
		a.sent(3)
		b.memory(0, 48)
	}},
	{Name: "row01/responses-flow", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "read me")
		a.post(verbs.Send(a.sge(0, 7))) // waits
		p.pause()
		b.post(verbs.Read(a.remote(0), b.sge(0, 7)))
		b.sent(1)
		b.memory(0, 8)
		b.recv(1, 64, 16)
		b.received(1)
		a.sent(1)
	}},
	{Name: "row01/queue-of-receives", run: func(p *program) {
		// The queue of receives is filled many times: no message is lost or reordered.
		const depth, rounds = 16, 8
		queue := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}
		a, b := p.pair(config{cap: queue, before: func(_, b *end) {
			for i := range depth {
				b.recv(uint64(i), 64*i, 64)
			}
		}})
		a.fill(0, 64*depth, 1)
		for r := range rounds {
			for i := range depth {
				a.post(id(uint64(r*depth+i+1), verbs.SendImm(uint32(r), a.sge(64*i, i+1))))
			}
			b.received(depth)
			a.sent(depth)
			for i := range depth {
				b.recv(uint64((r+1)*depth+i), 64*i, 64)
			}
		}
		b.memory(0, 64*depth)
	}},
	{Name: "row01/rnr-exceeded", run: func(p *program) {
		// The sender tries twice, about 0.6 ms apart. The receiver sets both.
		a, b := p.pair(config{passive: cm.ConnParam{RNRRetryCount: 1, MinRNRTimer: 12}})
		a.post(verbs.Send(a.sge(0, 3)), verbs.Send(a.sge(4, 3)))
		a.sent(2)
		a.ended()
		b.ended()
		a.post(id(3, verbs.Send(a.sge(0, 3))))
		a.sent(1)
	}},
}
