// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// advance makes all progress that is currently possible. The caller holds mu.
func (q *qp) advance() {
	if q.id != nil && !q.dead {
		q.sayHello()
		if q.gone() {
			q.sayLast()
		} else if q.running() && q.heard && q.spoken {
			if q.tell { // the peer must learn of changed rights before it gets later requests
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
	} else if q.self() {
		q.loop()
	}
	q.retire()
	if q.hand != nil && !q.self() {
		q.await()
	}
	if q.notify && q.state == verbs.QPStateSQD && q.next == 0 && !q.midway() {
		q.notify = false
		q.ctx.events.Post(verbs.AsyncEvent{Type: verbs.EventSQDrained, QP: q.owner})
	}
	if q.state == verbs.QPStateErr {
		if q.id != nil && !q.dead {
			q.sayLast() // retire may have ended the connection
			q.post()
		}
		q.settle()
	}
}

// sayHello sends the hello. The active side goes first: on iWARP the passive side must not.
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

// speak sends pending answers and acknowledgements, and requests confirmation if needed.
func (q *qp) speak() {
	if q.last {
		return
	}
	for q.answers.Len() > 0 && q.maySpeak() {
		h := q.answers.Pop()
		q.say(nil, 0, h, nil, nil)
		if h.Status != 0 {
			q.last = true
			q.fail(verbs.WCStatus(h.Status))
			return
		}
	}
	if q.reqs.Len() > q.cap.MaxSendWR/2 {
		q.wantAll() // to free the places of unsignaled requests
	}
	// setting the flag on the last message covers all of them
	if q.asked <= q.taken && q.tail >= 0 && q.unsure() {
		wire.Ask(q.slots.sendBytes(q.tail)[:wire.HeaderLen])
		q.asked = q.sent
	}
	if q.asked <= q.taken && q.maySpeak() && (q.tell || q.unsure()) {
		q.credit()
	}
	news := q.asked <= q.taken && q.short()
	if (q.owes || news) && q.maySpeak() && !q.postpones() {
		if q.owes {
			q.say(nil, 0, wire.Header{Kind: wire.Ack}, nil, nil)
		}
		if news && q.short() && q.maySpeak() {
			q.credit()
		}
	}
}

// credit sends a message of its own with FlagAsk, the QP's access rights and new adverts.
func (q *qp) credit() {
	q.tell = false
	q.say(nil, 0, wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Value: uint64(uint32(q.access))}, nil, nil)
}

// short reports whether so few receives are advertised that the peer needs more: none, or at most
// half of what it may hold.
func (q *qp) short() bool {
	untold := q.recvs.Len() - q.told
	if untold == 0 || q.told == 0 {
		return untold > 0
	}
	most := min(q.cap.MaxRecvWR, wire.MaxTold)
	if q.opens(q.recvs.At(q.told)) {
		most = min(most, mostOpen)
	}
	return min(untold, most-q.told) >= most/2
}

// maySpeak reports whether there is room for one of the engine's own messages. If not, completions
// of earlier messages will make room.
func (q *qp) maySpeak() bool { return len(q.slots.free) > 0 && q.flight.Len() < q.depth }

// sayLast sends this side's last message, unless one was sent.
func (q *qp) sayLast() {
	if q.last || !q.spoken || !q.heard || !q.maySpeak() {
		return
	}
	q.last = true
	q.say(nil, 0, wire.Header{Kind: wire.Bye}, nil, nil)
}

// say sends a message: a header, pending adverts, and a payload from the engine or from the
// program's memory. r is the request that the message belongs to, or nil.
func (q *qp) say(r *request, number uint64, h wire.Header, payload []byte, sgl []verbs.SGE) {
	q.sent++
	q.paid()
	if r != nil {
		r.covered = q.sent
	}
	if q.owes {
		h.Flags |= wire.FlagAck
		q.owes, q.urgent = false, false
	}
	if h.Kind == wire.Part { // the sooner it is acknowledged, the sooner further Parts can be sent
		if q.want = max(q.want, q.sent); q.asked <= q.taken {
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
		for q.told < min(q.recvs.Len(), wire.MaxTold) && h.Adverts < wire.MaxAdverts &&
			q.advert(q.recvs.At(q.told), a, room) {
			room -= wire.AdvertLen + len(a.Segments)*wire.SegmentLen
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
	if h.Kind == wire.Data || h.Kind == wire.Placed || h.Kind == wire.WriteImm {
		q.tail = slot
	}
}
