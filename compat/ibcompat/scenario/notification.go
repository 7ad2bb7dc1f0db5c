// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// Row 12: completion events, all or solicited only.
var notification = []*Scenario{
	{Name: "row12/solicited", run: func(p *program) {
		a, b := p.pair(config{channels: true})
		for i := range 4 {
			b.recv(uint64(i), 64*i, 64)
		}
		b.called("ReqNotify", 0, b.rcq.ReqNotify(true))
		a.post(with(verbs.SendSolicited, verbs.SendImm(1, a.sge(0, 8))))
		a.sent(1)
		b.event(true)
		b.received(1)
		b.called("ReqNotify", 0, b.rcq.ReqNotify(true))
		a.post(with(verbs.SendSolicited, verbs.WriteImm(b.remote(1024), 2, a.sge(0, 8))))
		a.sent(1)
		b.event(true)
		b.received(1)
	}},
	{Name: "row12/unsolicited", run: func(p *program) {
		a, b := p.pair(config{channels: true})
		b.recv(1, 0, 64)
		b.recv(2, 64, 64)
		b.called("ReqNotify", 0, b.rcq.ReqNotify(true))
		a.post(verbs.Send(a.sge(0, 8)))
		a.sent(1)
		b.event(false)
		a.post(with(verbs.SendSolicited, verbs.Send(a.sge(0, 8))))
		a.sent(1)
		b.event(true)
		b.received(2)
	}},
	{Name: "row12/any", run: func(p *program) {
		a, b := p.pair(config{channels: true})
		b.recv(1, 0, 64)
		b.called("ReqNotify", 0, b.rcq.ReqNotify(false))
		a.post(verbs.Send(a.sge(0, 8)))
		b.event(true)
		b.received(1)
		a.sent(1)
	}},
	{Name: "row12/failure", run: func(p *program) {
		// A failed completion is solicited.
		a, b := p.pair(config{channels: true})
		b.recv(1, 0, 64)
		b.called("ReqNotify", 0, b.rcq.ReqNotify(true))
		a.disconnect()
		b.event(true)
		b.received(1)
	}},
}

// event waits for a completion event of the receives, or a short time if none is expected, and adds
// the outcome to the trace.
func (e *end) event(want bool) {
	limit := Limit / 2
	if !want {
		limit = 50 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	_, err := e.ch.Wait(ctx)
	if !want && errors.Is(err, context.DeadlineExceeded) && e.ctx.Err() == nil {
		e.add(Event{End: e.name, Kind: "fact", Name: "no event"})
		return
	}
	e.called("CompChannel.Wait", 0, err)
}

// Row 18: Send with Invalidate and 64-bit immediates, which not every fabric supports.
var queues = []*Scenario{
	{Name: "row18/send-inv",
		Reduced: "that a Send with Invalidate is either supported or refused, and that nothing is sent if it is refused", run: func(p *program) {
			a, b := p.pair(config{})
			b.recv(1, 0, 64)
			wr := verbs.SendInv(0x12345600, a.sge(0, 8))
			if a.qp.Supports(verbs.OpSendInv) {
				p.fact("consistent", "%v", true)
			} else {
				n, err := a.qp.PostSend([]verbs.SendWR{wr})
				p.fact("consistent", "%v", n == 0 && errors.Is(err, verbs.ErrNotSupported))
			}
			a.put(0, "what follows")
			a.post(verbs.Send(a.sge(0, 12)))
			a.sent(1)
			b.received(1)
			b.memory(0, 16)
			a.empty("sent", a.scq)
		}},
	{Name: "row18/refused", Reduced: "that an operation which the QP does not support is refused, and that nothing is sent",
		run: func(p *program) {
			a, b := p.pair(config{})
			b.recv(1, 0, 64)
			refused := true
			for op, wr := range map[verbs.Op]verbs.SendWR{verbs.OpImm64: ext.ImmDataWR(7),
				verbs.OpSendInv:  verbs.SendInv(1, a.sge(0, 8)),
				verbs.OpLocalInv: {Opcode: verbs.WRLocalInv, InvalidateRKey: 1}} {
				if !a.qp.Supports(op) {
					n, err := a.qp.PostSend([]verbs.SendWR{wr})
					refused = refused && n == 0 && errors.Is(err, verbs.ErrNotSupported)
				}
			}
			p.fact("refused", "%v", refused)
			a.post(verbs.Send(a.sge(0, 8)))
			a.sent(1)
			b.received(1)
		}},
	{Name: "row18/unknown", run: func(p *program) {
		a, _ := p.pair(config{})
		a.post(verbs.SendWR{Opcode: 99, Flags: verbs.SendSignaled})
		a.empty("sent", a.scq)
	}},
}
