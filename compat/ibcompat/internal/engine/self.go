// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// A QP brought up manually can be its own peer. InfiniBand allows this, and programs use such a QP
// to access their own memory through the device. It has no connection and no messages. The
// goroutine that posts a request executes it within the memory of the process, in posting order and
// with the checks that a peer would make. A message that lacks a receive waits as usual (RNR); the
// goroutine that posts the receive then executes it and what follows. Posting does not block: a
// request longer than a step continues in a goroutine that releases the QP's lock after every step.
//
// A request is therefore confirmed as soon as it is executed. One that fails has its status at that
// point, and the QP goes to ERR.

// bounceLen is how many bytes are copied at once. Data pass through a buffer because source and
// destination may be the same region, whose lock must not be taken twice.
const bounceLen = 64 << 10

// stepLen is how many bytes are copied before the QP's lock is released, which takes some 100 us.
const stepLen = 1 << 20

// lone is the request state of a QP that is its own peer.
type lone struct {
	bounce []byte // of length bounceLen
	left   int    // bytes left in this step
	onward bool   // a goroutine will execute the next step
	step   func() // the function of that goroutine
}

// alone makes a QP its own peer.
func (q *qp) alone(h *hand) {
	h.bounce = make([]byte, 0, bounceLen)
	h.step = func() {
		defer q.ending.Done()
		q.mu.Lock()
		defer q.mu.Unlock()
		h.onward = false
		q.advance()
	}
}

// self reports whether the QP is its own peer.
func (h *hand) self() bool { return h.call.From == h.call.To }

func (q *qp) self() bool { return q.hand != nil && q.hand.self() }

// loop executes the requests of a QP that is its own peer, until one has to wait or the step is
// over. The caller holds mu.
func (q *qp) loop() {
	h := q.hand
	if h.onward {
		return
	}
	q.told, h.left = q.recvs.Len(), stepLen // nothing needs to be advertised
	for !q.stopped && q.next < q.reqs.Len() &&
		(q.state == verbs.QPStateRTS || q.state == verbs.QPStateSQD && q.midway()) {
		r := q.reqs.At(q.next)
		if q.checkLocal(r); r.status == verbs.WCSuccess {
			if r.message && q.recvs.Len() == 0 && !q.outOfReceives(r) {
				return
			}
		}
		if r.status == verbs.WCSuccess {
			r.status, r.reason = q.executeOwn(r)
		}
		switch {
		case r.status != verbs.WCSuccess:
			r.refused, q.stopped = true, true
		case r.sent < r.length:
			h.onward = true
			q.ending.Add(1)
			go h.step()
			return
		}
		q.next++
	}
}

// outOfReceives is called for a message without a receive. It reports whether the retries are
// exhausted, so that the request fails.
func (q *qp) outOfReceives(r *request) bool {
	h := &q.hand.attr
	switch n := q.rnrOf(q.base + uint64(q.next)); {
	case h.RNRRetry == 7 || n.resting:
		return false
	case n.naks == int(h.RNRRetry):
		r.status, r.reason = verbs.WCRNRRetryExcErr, noReceive(n)
		return true
	}
	q.restRNR(h.MinRNRTimer)
	return false
}

// executeOwn executes a request that is ready, as far as the step allows (request.sent), and
// returns its status.
func (q *qp) executeOwn(r *request) (verbs.WCStatus, error) {
	need := right(r.op)
	if isAtomic(r.op) {
		a := q.execute(r.atomic())
		if a.Status != 0 {
			return verbs.WCStatus(a.Status), refusedAt(r)
		}
		if err := q.store(r, a.Value); err != nil {
			return verbs.WCLocProtErr, err
		}
		r.sent = r.length
		return verbs.WCSuccess, nil
	}
	if need == 0 {
		return q.sendOwn(r)
	}
	if r.length > 0 && r.sent == 0 {
		if q.access&need == 0 {
			return verbs.WCRemInvReqErr, refusedAt(r)
		}
		_, m, err := q.dom.find(r.rkey, r.addr, r.length, need) // check it all before any of it is placed
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		m.mu.RUnlock()
	}
	if r.op == verbs.WRRDMARead {
		return q.readOwn(r)
	}
	status, err := q.writeOwn(r)
	if r.op == verbs.WRRDMAWriteWithImm && err == nil && r.sent == r.length {
		q.receivedOwn(r, verbs.WCRecvRDMAWithImm)
	}
	return status, err
}

// refusedAt returns the reason why a request was refused.
func refusedAt(r *request) error {
	return fmt.Errorf("%v of %d bytes at %#x with key %#x is not allowed", r.op, r.length, r.addr, r.rkey)
}

// data returns the next bytes of a request's data, valid until the next call.
func (q *qp) data(r *request) ([]byte, error) {
	n := min(r.length-r.sent, bounceLen)
	if r.flags&verbs.SendInline != 0 {
		return r.inline[r.sent:][:n], nil
	}
	c := cursor{sgl: r.sgl, skip: r.sent}
	b, err := q.dom.fetch(c.take(q, n), q.hand.bounce[:0])
	q.arena = q.arena[:0]
	return b, err
}

// more reports whether the request continues in this step.
func (q *qp) more(r *request) bool { return r.sent < r.length && q.hand.left > 0 }

// copied counts bytes of a request that were copied.
func (q *qp) copied(r *request, b []byte) {
	r.sent += uint64(len(b))
	q.hand.left -= len(b)
}

func (q *qp) writeOwn(r *request) (verbs.WCStatus, error) {
	for q.more(r) {
		b, err := q.data(r)
		if err != nil {
			return verbs.WCLocProtErr, err
		}
		mem, m, err := q.dom.find(r.rkey, r.addr+r.sent, uint64(len(b)), verbs.AccessRemoteWrite)
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		if err := m.place(mem, b); err != nil {
			return verbs.WCRemAccessErr, err
		}
		q.copied(r, b)
	}
	return verbs.WCSuccess, nil
}

func (q *qp) readOwn(r *request) (verbs.WCStatus, error) {
	for q.more(r) {
		b := q.hand.bounce[:min(r.length-r.sent, bounceLen)]
		mem, m, err := q.dom.find(r.rkey, r.addr+r.sent, uint64(len(b)), verbs.AccessRemoteRead)
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		if err := m.fetch(b, mem); err != nil {
			return verbs.WCRemAccessErr, err
		}
		sink := receive{sgl: r.sgl, filled: r.sent}
		if err := q.scatter(&sink, b); err != nil {
			return verbs.WCLocProtErr, err
		}
		q.copied(r, b)
	}
	return verbs.WCSuccess, nil
}

// sendOwn copies a Send into the oldest receive. If the receive cannot take it, both fail.
func (q *qp) sendOwn(r *request) (verbs.WCStatus, error) {
	to := q.recvs.At(0)
	if r.length > to.total {
		q.received(verbs.WC{Status: verbs.WCLocLenErr}, false)
		return verbs.WCRemInvReqErr, &verbs.LimitError{Name: "the receive", Limit: to.total, Value: r.length}
	}
	for q.more(r) {
		b, err := q.data(r)
		if err != nil {
			return verbs.WCLocProtErr, err
		}
		if err := q.scatter(to, b); err != nil {
			q.blamed = append(q.blamed, blame{to.id, verbs.WCLocProtErr, verbs.WCRecv, err})
			q.received(verbs.WC{Status: verbs.WCLocProtErr}, false)
			return verbs.WCRemOpErr, err
		}
		q.copied(r, b)
	}
	if r.sent == r.length {
		q.receivedOwn(r, verbs.WCRecv)
	}
	return verbs.WCSuccess, nil
}

// receivedOwn completes the oldest receive with a request of the same QP.
func (q *qp) receivedOwn(r *request, opcode verbs.WCOpcode) {
	wc := verbs.WC{Opcode: opcode, ByteLen: uint32(r.length)}
	if r.op != verbs.WRSend {
		wc.Flags, wc.Imm, wc.Imm64 = verbs.WCWithImm, r.imm, uint64(r.imm)<<32
	}
	q.received(wc, r.wireFlags()&wire.FlagSolicited != 0)
}
