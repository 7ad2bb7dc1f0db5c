// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// advance does everything that can be done now. The caller holds mu.
func (q *qp) advance() {
	if q.hand != nil {
		if q.gone() && q.state == verbs.QPStateRTS && q.reqs.len() > 0 {
			q.exceed(q.hand.gone)
		}
		q.await()
	}
	if q.id != nil && !q.dead {
		q.sayHello()
		if q.gone() {
			q.sayLast()
		} else if q.running() && q.heard && q.spoken {
			if q.tell { // the peer learns of changed rights before it gets what is posted behind
				q.speak()
			}
			if !q.tell {
				q.issue()
				q.notReady()
				q.speak()
			}
		} else if q.state == verbs.QPStateErr {
			q.sayLast()
		}
		q.post()
	}
	q.retire()
	if q.notify && q.state == verbs.QPStateSQD && q.next == 0 && !q.midway() {
		q.notify = false
		q.ctx.post(verbs.AsyncEvent{Type: verbs.EventSQDrained, QP: q.owner})
	}
	if q.state == verbs.QPStateErr {
		if q.id != nil && !q.dead {
			q.sayLast() // retire may have ended the connection
			q.post()
		}
		q.settle()
	}
}

// sayHello sends the hello. The active side does so first: on iWARP the passive side must not.
func (q *qp) sayHello() {
	if q.spoken || q.last || !q.active && !q.heard || !q.running() {
		return
	}
	q.spoken = true
	slot := q.slots.take()
	h := q.greet()
	b := h.Append(q.slots.sendBytes(slot))
	q.piece(nil, 0, verbs.SendWR{Opcode: verbs.WRSend, SGL: q.keep(q.slots.sendSGE(slot, len(b)))}, slot)
}

// speak sends what this side owes to the peer, and what it wants to know.
func (q *qp) speak() {
	if q.last {
		return
	}
	for q.answers.len() > 0 && q.maySpeak() {
		h := q.answers.pop()
		q.say(nil, 0, h, nil, nil)
		if h.Status != 0 {
			q.last = true
			q.fail(verbs.WCStatus(h.Status))
			return
		}
	}
	if q.reqs.len() > q.cap.MaxSendWR/2 {
		q.want = max(q.want, q.cover) // to get the places back of requests that the program does not wait for
	}
	if q.asked <= q.taken && q.maySpeak() {
		untold := q.recvs.len() - q.told
		ask := q.want > q.taken && !(q.awaiting > 0 && q.atomic >= q.want)
		if ask || q.tell || untold > 0 && (q.told == 0 || untold >= q.cap.MaxRecvWR/2) {
			q.tell = false
			q.say(nil, 0, wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Value: uint64(uint32(q.access))}, nil, nil)
		}
	}
	if q.owes && q.maySpeak() {
		q.say(nil, 0, wire.Header{Kind: wire.Ack}, nil, nil)
	}
}

// maySpeak reports whether there is room for a message that is for no request. If not, the completions of earlier ones make it.
func (q *qp) maySpeak() bool { return len(q.slots.free) > 0 && q.flight.len() < q.depth }

// sayLast sends the last message of this side, unless it has been.
func (q *qp) sayLast() {
	if q.last || !q.spoken || !q.heard || !q.maySpeak() {
		return
	}
	q.last = true
	q.say(nil, 0, wire.Header{Kind: wire.Bye}, nil, nil)
}

// say sends a message: a header, receives of which the peer does not know, and a payload of ours or of the program's memory. r is
// the request that it is for; nil = none.
func (q *qp) say(r *request, number uint64, h wire.Header, payload []byte, sgl []verbs.SGE) {
	q.sent++
	if r != nil {
		r.covered = q.sent
		if r.signaled && !r.relaxed || h.Kind == wire.Part {
			q.want = max(q.want, q.sent)
		}
	}
	if q.owes {
		h.Flags |= wire.FlagAck
		q.owes = false
	}
	switch h.Kind {
	case wire.Data, wire.Placed, wire.WriteImm, wire.Part:
		// Behind the last message of those that are waiting the answer is asked for, for all of them.
		if q.asked <= q.taken && q.want > q.taken && (q.messages == 1 || h.Kind == wire.Part) {
			h.Flags |= wire.FlagAsk
		}
	}
	if h.Flags&wire.FlagAsk != 0 {
		q.asked = q.sent
	}
	room := int(q.peer.SlotLen) - wire.HeaderLen - len(payload)
	for i := range sgl {
		room -= int(sgl[i].Length)
	}
	room = min(room, sendSlot-wire.HeaderLen-len(payload))
	h.Taken, h.First = q.got, q.tells
	slot := q.slots.take()
	b := q.slots.sendBytes(slot)[:wire.HeaderLen]
	if q.running() {
		a := &q.scratch
		for q.told < q.recvs.len() && h.Adverts < wire.MaxAdverts {
			next := q.recvs.at(q.told)
			q.advert(next, a)
			n := wire.AdvertLen + len(a.Segments)*wire.SegmentLen
			if n > room {
				break
			}
			room -= n
			b = a.Append(b)
			h.Adverts++
			q.told++
			q.tells++
		}
	}
	h.Append(b[:0])
	b = append(b, payload...)
	at := len(q.arena)
	q.arena = append(q.arena, q.slots.sendSGE(slot, len(b)))
	for i := range sgl {
		if sgl[i].Length > 0 {
			q.arena = append(q.arena, sgl[i])
		}
	}
	q.piece(r, number, verbs.SendWR{Opcode: verbs.WRSend, SGL: q.arena[at:]}, slot)
}
