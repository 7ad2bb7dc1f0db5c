// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// A QP by hand whose peer is itself. InfiniBand allows it; programs use such a QP to reach memory of their own by way of the device.
// It has no connection and no messages: the goroutine that posts a request executes it, in the memory of the process, in the order of
// posting and with the checks that a peer makes. A message waits for a receive as any does (RNR): then the goroutine that posts the
// receive executes it and what stands behind it.
//
// So a request is sure when it has been executed. One that fails has its status then, and the QP goes to ERR.

// bounceLen is how much is copied at a time. Data go by way of a buffer: source and destination may be one region, whose lock must not
// be taken twice.
const bounceLen = 64 << 10

// self reports whether the QP is its own peer.
func (h *hand) self() bool { return h.call.From == h.call.To }

func (q *qp) self() bool { return q.hand != nil && q.hand.self() }

// loop executes the requests of a QP that is its own peer, until one has to wait. The caller holds mu.
func (q *qp) loop() {
	q.told = q.recvs.Len() // nobody has to be told
	for !q.stopped && q.next < q.reqs.Len() && q.state == verbs.QPStateRTS {
		r := q.reqs.At(q.next)
		if q.mayExecute(r); r.status == verbs.WCSuccess {
			if r.message && q.recvs.Len() == 0 && !q.outOfReceives(r) {
				return
			}
		}
		if r.status == verbs.WCSuccess {
			r.status, r.reason = q.executeOwn(r)
		}
		if r.status != verbs.WCSuccess {
			r.refused, q.stopped = true, true
		}
		q.next++
	}
}

// mayExecute checks what this side of a request needs.
func (q *qp) mayExecute(r *request) {
	one := r.op == verbs.WRRDMARead || isAtomic(r.op)
	if !r.checked && r.status == verbs.WCSuccess {
		r.checked = true
		need := verbs.AccessFlags(0)
		if one {
			need = verbs.AccessLocalWrite
		}
		if err := q.dom.check(r.sgl, need); err != nil {
			r.status, r.reason = verbs.WCLocProtErr, err
		}
	}
	if one && q.ord == 0 && r.status == verbs.WCSuccess {
		r.status, r.reason = verbs.WCLocQPOpErr, noDepth(r.op)
	}
}

// outOfReceives is called for a message without a receive. It reports whether that has been so often that the request has failed.
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

// executeOwn executes a request for which everything is ready, and returns its status.
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
		return verbs.WCSuccess, nil
	}
	if need == 0 {
		return q.sendOwn(r)
	}
	if r.length > 0 {
		if q.access&need == 0 {
			return verbs.WCRemInvReqErr, refusedAt(r)
		}
		_, m, err := q.dom.find(r.rkey, r.addr, r.length, need) // of what does not fit nothing is placed
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		m.mu.RUnlock()
	}
	if r.op == verbs.WRRDMARead {
		return q.readOwn(r)
	}
	if status, err := q.writeOwn(r); err != nil || r.op == verbs.WRRDMAWrite {
		return status, err
	}
	q.receivedOwn(r, verbs.WCRecvRDMAWithImm)
	return verbs.WCSuccess, nil
}

// refusedAt is why a request has been refused.
func refusedAt(r *request) error {
	return fmt.Errorf("%v of %d bytes at %#x with key %#x is not allowed", r.op, r.length, r.addr, r.rkey)
}

// data returns the next bytes of a request's data, which are valid until the next call.
func (q *qp) data(r *request, at uint64) ([]byte, error) {
	n := min(r.length-at, bounceLen)
	if r.flags&verbs.SendInline != 0 {
		return r.inline[at:][:n], nil
	}
	c := cursor{sgl: r.sgl, skip: at}
	b, err := q.dom.fetch(c.take(q, n), q.hand.bounce[:0])
	q.arena = q.arena[:0]
	return b, err
}

func (q *qp) writeOwn(r *request) (verbs.WCStatus, error) {
	for at := uint64(0); at < r.length; {
		b, err := q.data(r, at)
		if err != nil {
			return verbs.WCLocProtErr, err
		}
		mem, m, err := q.dom.find(r.rkey, r.addr+at, uint64(len(b)), verbs.AccessRemoteWrite)
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		regmem.Place(mem, b)
		m.mu.RUnlock()
		at += uint64(len(b))
	}
	return verbs.WCSuccess, nil
}

func (q *qp) readOwn(r *request) (verbs.WCStatus, error) {
	sink := receive{sgl: r.sgl}
	for sink.filled < r.length {
		b := q.hand.bounce[:min(r.length-sink.filled, bounceLen)]
		mem, m, err := q.dom.find(r.rkey, r.addr+sink.filled, uint64(len(b)), verbs.AccessRemoteRead)
		if err != nil {
			return verbs.WCRemAccessErr, err
		}
		regmem.Fetch(b, mem)
		m.mu.RUnlock()
		if err := q.scatter(&sink, b); err != nil {
			return verbs.WCLocProtErr, err
		}
	}
	return verbs.WCSuccess, nil
}

// sendOwn copies a Send into the oldest receive. If that is not good for it, both have failed.
func (q *qp) sendOwn(r *request) (verbs.WCStatus, error) {
	to := q.recvs.At(0)
	if r.length > to.total {
		q.received(verbs.WC{Status: verbs.WCLocLenErr}, false)
		return verbs.WCRemInvReqErr, &verbs.LimitError{Name: "the receive", Limit: to.total, Value: r.length}
	}
	for at := uint64(0); at < r.length; {
		b, err := q.data(r, at)
		if err != nil {
			return verbs.WCLocProtErr, err
		}
		if err := q.scatter(to, b); err != nil {
			q.blamed = append(q.blamed, blame{to.id, verbs.WCLocProtErr, verbs.WCRecv, err})
			q.received(verbs.WC{Status: verbs.WCLocProtErr}, false)
			return verbs.WCRemOpErr, err
		}
		at += uint64(len(b))
	}
	q.receivedOwn(r, verbs.WCRecv)
	return verbs.WCSuccess, nil
}

// receivedOwn completes the oldest receive with a request of the QP.
func (q *qp) receivedOwn(r *request, opcode verbs.WCOpcode) {
	wc := verbs.WC{Opcode: opcode, ByteLen: uint32(r.length)}
	if r.op != verbs.WRSend {
		wc.Flags, wc.Imm, wc.Imm64 = verbs.WCWithImm, r.imm, uint64(r.imm)<<32
	}
	q.received(wc, r.wireFlags()&wire.FlagSolicited != 0)
}
