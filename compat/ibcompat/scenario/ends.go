// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"github.com/goverbs/goverbs/verbs"
)

// Row 17: both ends notice the disconnect. Row 22: a QP is connected again. Row 23: what has
// completed has arrived.
var ends = []*Scenario{
	{Name: "row17/disconnect", run: func(p *program) {
		a, b := p.pair(config{})
		a.recv(1, 0, 8)
		b.recv(2, 0, 8)
		a.disconnect()
		a.received(1)
		b.received(1)
		a.disconnected()
		b.disconnected()
	}},
	{Name: "row17/passive-disconnects", run: func(p *program) {
		a, b := p.pair(config{})
		a.recv(1, 0, 8)
		b.disconnect()
		a.received(1)
		b.disconnected()
		a.disconnected()
		a.post(verbs.Send(a.sge(0, 8)))
		a.sent(1)
	}},
	{Name: "row17/waiting-send",
		Reduced: "that a Send which waits for a receive does not succeed when the receiver disconnects",
		run: func(p *program) {
			a, b := p.pair(config{})
			n, err := a.qp.PostSend([]verbs.SendWR{verbs.Send(a.sge(0, 8))})
			a.called("PostSend", n, err)
			p.pause()
			b.disconnect()
			wc := a.next("sent", a.scq)
			p.fact("succeeded", "%v", wc.Status == verbs.WCSuccess)
			a.ended()
			b.ended()
		}},
	{Name: "row22/again", run: func(p *program) {
		a, b := p.pair(config{})
		for i := range 3 {
			a.put(0, "again")
			b.recv(uint64(i), 0, 64)
			a.post(id(uint64(i)+1, verbs.SendImm(uint32(i), a.sge(0, 5))))
			a.sent(1)
			b.received(1)
			a.disconnect()
			a.ended()
			b.ended()
			must(a.id.Close())
			must(b.id.Close())
			for _, e := range []*end{a, b} {
				e.called("Modify to RESET", 0, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			}
			must(a.connect(b, config{}))
		}
		b.post(verbs.Read(a.remote(0), b.sge(64, 5)))
		b.sent(1)
		b.memory(64, 8)
	}},
	{Name: "row22/reset-forgets", run: func(p *program) {
		a, b := p.pair(config{})
		a.recv(1, 0, 8)
		b.disconnect()
		a.ended()
		a.received(1)
		a.called("Modify to RESET", 0, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		a.post(verbs.Send(a.sge(0, 8)))
		a.recv(2, 0, 8)
		a.empty("sent", a.scq)
		a.empty("received", a.rcq)
	}},
	{Name: "row23/loses-nothing",
		Reduced: "of the end that is left: that its receives succeed and then are flushed, and what has arrived",
		run: func(p *program) {
			const messages = 100
			caps := verbs.QPCap{MaxSendWR: messages, MaxRecvWR: messages + 10, MaxSendSGE: 1, MaxRecvSGE: 1}
			a, b := p.pair(config{cap: caps, before: func(a, b *end) {
				for i := range messages + 10 {
					a.recv(uint64(i), 32<<10, 64)
					b.recv(uint64(i), 64*(i%64), 64)
				}
			}})
			a.fill(0, 4096, 8)
			for i := range messages {
				// Both ends send; the active one disconnects once its own messages have completed.
				n, err := b.qp.PostSend([]verbs.SendWR{quiet(verbs.Send(b.sge(32<<10, 16)))})
				b.called("PostSend", n, err)
				a.post(id(uint64(i)+1, verbs.Send(a.sge(64*(i%60), i%64))))
			}
			a.sent(messages)
			a.disconnect()
			arrived, flushed, inOrder := 0, 0, true
			for i := range messages + 10 {
				switch wc := b.next("received", b.rcq); {
				case wc.Status == verbs.WCSuccess && flushed == 0:
					inOrder = inOrder && wc.ID == uint64(i) && wc.ByteLen == uint32(i%64)
					arrived++
				default:
					flushed++
				}
			}
			p.fact("arrived", "%d, in order %v, then %d flushed", arrived, inOrder, flushed)
			b.ended()
			b.memory(0, 4096)
		}},
	{Name: "row23/flushed-is-not-sent", run: func(p *program) {
		// A message that still waits for a receive when this end disconnects has not arrived, and
		// its completion says so.
		a, b := p.pair(config{})
		a.post(verbs.Send(a.sge(0, 8)), verbs.Write(b.remote(0), a.sge(0, 8)))
		p.pause()
		a.fill(0, 8, 9)
		a.disconnect()
		a.sent(2)
		b.ended()
		b.memory(0, 8)
	}},
}
