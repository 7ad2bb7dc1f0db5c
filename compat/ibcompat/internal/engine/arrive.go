// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// completed handles a completion of the inner QP. The caller holds mu and calls advance afterwards.
func (q *qp) completed(wc *verbs.WC) {
	if slot := uint32(wc.ID); slot&slotBit != 0 {
		q.posted--
		if q.renewing {
			return
		}
		if wc.Status != verbs.WCSuccess {
			q.broken(wc.Status)
			return
		}
		trial := q.hand != nil && !q.heard && q.running()
		if q.dead && (q.drop || trial) {
			return
		}
		if err := q.arrived(int(slot&^slotBit), wc); err != nil && trial {
			q.spurn(err)
		} else if err != nil {
			q.violated(err)
		} else if !q.dead {
			if err := q.repost(int(slot &^ slotBit)); err != nil {
				q.broken(err)
			}
		}
		return
	}
	p := q.flight.Pop()
	q.landed(&p, wc.Status)
	if wc.Status != verbs.WCSuccess {
		q.broken(wc.Status)
	}
}

// accepts reports whether requests of the peer are executed.
func (q *qp) accepts() bool { return q.running() && !q.refusing && !q.gone() }

// arrived handles a message in a slot. An error is a violation by the peer; the message then has no
// effect.
func (q *qp) arrived(slot int, wc *verbs.WC) error {
	if wc.Opcode == verbs.WCRecvRDMAWithImm {
		return q.immediateData(wc)
	}
	b := q.slots.received(slot, wc.ByteLen)
	if !q.heard {
		return q.hello(b)
	}
	h, rest, err := wire.ParseHeader(b)
	if err != nil {
		return &ProtocolError{err}
	}
	// The adverts are parsed twice: first to check them all, then to store them.
	body, err := q.checkAdverts(&h, rest)
	if err != nil {
		return err
	}
	switch {
	case q.peerLast:
		return violation("a message behind the last")
	case h.Taken < q.taken || h.Taken > q.sent:
		return violation("%d messages taken, of %d to %d", h.Taken, q.taken, q.sent)
	case h.Flags&wire.FlagAsk != 0 && q.owes:
		return violation("a question before the answer to the last")
	}
	if err := q.checkKind(&h, body); err != nil {
		return err
	}
	q.taken = h.Taken
	q.takeAdverts(&h, rest)
	if h.Flags&wire.FlagAsk != 0 {
		q.owes, q.urgent = true, h.Kind == wire.Credit || h.Kind == wire.Part
	}
	if !q.accepts() && h.Kind != wire.Answer && h.Kind != wire.Bye && h.Kind != wire.Refused && h.Kind != wire.TooLong {
		q.deaf = true // not taken: the peer flushes it
		return nil
	}
	if !q.deaf && h.Kind != wire.TooLong {
		q.got++
	}
	q.take(&h, body)
	return nil
}

func (q *qp) hello(b []byte) error {
	h, err := wire.ParseHello(b)
	if err != nil {
		return &ProtocolError{err}
	}
	if h.Threshold < leastPart {
		return violation("a threshold of %d bytes", h.Threshold)
	}
	q.peer, q.heard = h, true
	if q.hand != nil {
		q.hand.settled(q.hand.trial)
		if q.hand.timer != nil {
			q.hand.timer.Stop()
			q.hand.timer = nil
		}
	}
	// until a Credit announces others
	q.rights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	q.full = q.ctx.full() && verbs.OpSet(h.Native)&oneSided == oneSided
	return nil
}

// checkAdverts checks the adverts of a message and returns what follows them.
func (q *qp) checkAdverts(h *wire.Header, b []byte) ([]byte, error) {
	if h.Adverts > 0 && h.First != q.known {
		return nil, violation("advert %d where %d is next", h.First, q.known)
	}
	if n := q.adverts.Len() + int(h.Adverts); n > int(q.peer.Slots) || n > wire.MaxTold {
		return nil, violation("%d receives for %d slots, and at most %d", n, q.peer.Slots, wire.MaxTold)
	}
	for range h.Adverts {
		var err error
		if b, err = wire.ParseAdvert(b, &q.scratch); err != nil {
			return nil, &ProtocolError{err}
		}
	}
	return b, nil
}

func (q *qp) takeAdverts(h *wire.Header, b []byte) {
	for range h.Adverts {
		b, _ = wire.ParseAdvert(b, &q.scratch) // already checked
		q.adverts.add(&q.scratch)
		q.known++
	}
}

// checkKind checks whether a message of this kind is allowed now.
func (q *qp) checkKind(h *wire.Header, body []byte) error {
	var next *receive
	switch h.Kind {
	case wire.Data, wire.Part, wire.Placed, wire.WriteImm, wire.TooLong:
		if !q.accepts() {
			return nil
		}
		if q.told == 0 {
			return violation("a message without a receive")
		}
		next = q.recvs.At(0)
	}
	switch h.Kind {
	case wire.Data, wire.Part:
		if h.Value != uint64(len(body)) {
			return violation("a payload of %d bytes, said to be of %d", len(body), h.Value)
		}
		if h.Value > next.total-next.filled {
			return violation("%d bytes for a receive of %d", h.Value+next.filled, next.total)
		}
		return nil
	case wire.Placed:
		if len(next.keys) == 0 || h.Value > next.total || next.filled != 0 {
			return violation("%d bytes written into a receive of %d", h.Value, next.total)
		}
	case wire.WriteImm, wire.TooLong:
		if next != nil && next.filled != 0 {
			return violation("a message in the middle of another")
		}
		if next != nil && h.Kind == wire.TooLong && h.Value <= next.total {
			return violation("%d bytes that are too long for a receive of %d", h.Value, next.total)
		}
	case wire.Atomic:
		if q.answers.Len() == window {
			return violation("more than %d atomics at a time", window)
		}
		if _, err := wire.ParseAtomic(body); err != nil {
			return &ProtocolError{err}
		}
		return nil
	case wire.Answer:
		if q.awaiting == 0 {
			return violation("an answer to nothing")
		}
		if s := verbs.WCStatus(h.Status); s != verbs.WCSuccess && s != verbs.WCRemAccessErr &&
			s != verbs.WCRemInvReqErr {
			return violation("an answer with status %d", h.Status)
		}
	case wire.Refused:
		if s := verbs.WCStatus(h.Status); s != verbs.WCRemOpErr || h.Taken == q.sent {
			return violation("a refusal with status %d of message %d of %d", h.Status, h.Taken+1, q.sent)
		}
	}
	if len(body) > 0 {
		return violation("%d bytes behind a message", len(body))
	}
	return nil
}

// take executes a message that has been checked.
func (q *qp) take(h *wire.Header, body []byte) {
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(h.Value)}
	if h.Flags&wire.FlagImm != 0 {
		wc.Flags, wc.Imm, wc.Imm64 = verbs.WCWithImm, h.Imm, uint64(h.Imm)<<32
	}
	solicited := h.Flags&wire.FlagSolicited != 0
	switch h.Kind {
	case wire.Data, wire.Part:
		r := q.recvs.At(0)
		if err := q.scatter(r, body); err != nil {
			q.refuse(err)
			return
		}
		if h.Kind == wire.Part {
			return
		}
		wc.ByteLen = uint32(r.filled)
		q.received(wc, solicited)
	case wire.Placed:
		q.received(wc, solicited)
	case wire.WriteImm:
		wc.Opcode = verbs.WCRecvRDMAWithImm
		q.received(wc, solicited)
	case wire.TooLong:
		q.peerLast = true
		if !q.accepts() {
			return
		}
		reason := &verbs.LimitError{Name: "the receive", Limit: q.recvs.At(0).total, Value: h.Value}
		q.received(verbs.WC{Status: verbs.WCLocLenErr}, false)
		q.fail(reason)
	case wire.Credit:
		q.rights = verbs.AccessFlags(h.Value)
	case wire.Atomic:
		request, _ := wire.ParseAtomic(body) // already checked
		a := q.execute(request)
		q.answers.Push(a)
		q.refusing = a.Status != 0
	case wire.Answer:
		q.answered(h)
	case wire.Refused:
		q.peerLast = true
		for i := range q.begun() {
			if r := q.reqs.At(i); r.message && (r.covered == h.Taken+1 || r.sent > 0 && r.covered > h.Taken) {
				r.status, r.remote = verbs.WCStatus(h.Status), true
				break
			}
		}
		q.fail(verbs.WCStatus(h.Status))
	case wire.Bye:
		q.peerLast = true
		if q.hand != nil && q.state != verbs.QPStateErr {
			q.lose(errPeerEnded)
			return
		}
		q.fail(errPeerEnded)
	}
}

// immediateData handles the immediate of a Write, which carries no header.
func (q *qp) immediateData(wc *verbs.WC) error {
	switch {
	case !q.heard || !q.full:
		return violation("immediate data on a connection that has none")
	case q.peerLast:
		return violation("a message behind the last")
	case !q.accepts():
		q.deaf = true
		return nil
	case q.told == 0 || q.recvs.At(0).filled != 0:
		return violation("immediate data without a receive")
	}
	q.got++
	q.received(verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ByteLen: wc.ByteLen, Flags: verbs.WCWithImm, Imm: wc.Imm,
		Imm64: uint64(wc.Imm) << 32}, false)
	return nil
}

// answered completes the oldest emulated atomic.
func (q *qp) answered(h *wire.Header) {
	for i := range q.next {
		r := q.reqs.At(i)
		if !r.waiting {
			continue
		}
		r.waiting = false
		q.awaiting--
		if h.Status != 0 {
			r.status, r.remote, q.peerLast = verbs.WCStatus(h.Status), true, true
			q.fail(r.status)
			return
		}
		if err := q.store(r, h.Value); err != nil { // the region was closed in the meantime
			r.status, r.reason, r.refused = verbs.WCLocProtErr, err, true
		}
		return
	}
}

// store stores the result of an atomic.
func (q *qp) store(r *request, value uint64) error {
	s := r.sgl[0]
	mem, m, err := q.dom.find(s.LKey, s.Addr, 8, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], value)
	if err := m.place(mem, b[:]); err != nil {
		return err
	}
	return nil
}
