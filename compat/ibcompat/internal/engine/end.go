// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// How a connection ends. Whatever the reason, the QP goes to ERR at once. Each side sends a last
// message, after which it sends nothing: Bye, or a message that reports a failure (TooLong,
// Refused, an Answer with a status). Once this side's has been sent and the peer's has arrived, or
// the wait for the peer has timed out, the inner connection is closed. After that nothing uses the
// memory of requests, and they are flushed.

// errPeerEnded is the cause when the peer closed the connection.
var errPeerEnded = io.EOF

// fail moves the QP to ERR. The caller holds mu.
func (q *qp) fail(cause error) {
	if q.state == verbs.QPStateErr {
		return
	}
	q.enter(verbs.QPStateErr)
	if q.hand != nil {
		q.hand.rest()
	}
	q.cause, q.flushed, q.parted = cause, make(chan struct{}), make(chan struct{})
	if q.rnr.resting {
		q.rnr.timer.Stop()
		q.rnr.resting = false
	}
	if !q.bound {
		q.settle()
		return
	}
	q.ending.Go(q.end)
}

// broken records that the inner QP failed.
func (q *qp) broken(err error) {
	q.dead = true
	if q.state == verbs.QPStateErr {
		return
	}
	if q.hand != nil && !q.heard {
		return // only an attempt to connect failed
	}
	cause := q.in.Err()
	if cause == nil {
		cause = err
	}
	if t := new(verbs.TerminateError); q.hand == nil || errors.As(cause, &t) && !t.Remote {
		q.fail(endOf(cause))
	} else {
		q.lose(endOf(cause))
	}
}

// endOf translates the reason why the inner connection ended. ErrClosed can also mean that the
// inner device was closed.
func endOf(cause error) error {
	if errors.Is(cause, verbs.ErrClosed) {
		return verbs.EndDisconnect
	}
	return cause
}

// violated closes the connection without a last message, because the peer violated the protocol.
func (q *qp) violated(err error) {
	q.last, q.peerLast = true, true
	q.fail(err)
	q.rush()
}

// rush cuts short every wait while the connection closes.
func (q *qp) rush() {
	if !q.hurried {
		q.hurried = true
		close(q.hurry)
	}
}

// refuse closes the connection because the memory of the oldest receive cannot take a message,
// which has already been counted.
func (q *qp) refuse(reason error) {
	q.got--
	status := verbs.WCLocProtErr
	q.blamed = append(q.blamed, blame{q.recvs.At(0).id, status, verbs.WCRecv, reason})
	q.received(verbs.WC{Status: status}, false)
	if q.maySpeak() && !q.last {
		q.say(nil, 0, wire.Header{Kind: wire.Refused, Status: uint8(verbs.WCRemOpErr)}, nil, nil)
		q.last = true
	}
	q.fail(reason)
}

// end closes the connection of a QP in ERR.
func (q *qp) end() {
	q.mu.Lock()
	id, in, parted, hurry := q.id, q.in, q.parted, q.hurry
	q.advance()
	dead := q.dead
	q.mu.Unlock()
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-parted:
	case <-patience.C:
	case <-hurry:
	}
	if id != nil {
		if dead { // a kernel flushes before it reports the reason, which a Disconnect of ours would replace
			reason := time.NewTimer(reasonTimeout)
			defer reason.Stop()
			select {
			case <-id.Done():
			case <-reason.C:
			case <-hurry:
			}
		}
		_ = id.Disconnect() // may have ended already
	}
	_ = in.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
	q.pump.work()
}

// settle continues to close the connection of a QP in ERR. The caller holds mu.
func (q *qp) settle() {
	early := !q.spoken || !q.heard && !q.active
	if !q.apart && q.parted != nil && (q.dead || q.id == nil || early || q.peerLast && q.last && q.flight.Len() == 0) {
		close(q.parted)
		q.apart = true
	}
	if q.posted > 0 || q.flight.Len() > 0 {
		return
	}
	select {
	case <-q.flushed:
		q.flush()
	default:
		q.flush()
		close(q.flushed)
	}
}

// accuse finds the request that the peer's device refused, if no request has an error status of its
// own. On iWARP a Write completes when it is sent; the refused one is the oldest unconfirmed Write
// that matches the header quoted in the Terminate. Kernel drivers report neither the contents of a
// Terminate nor its arrival, and siw omits it while it is sending something else. There it is the
// oldest unconfirmed one-sided request, provided that the peer closed the connection without a last
// message.
func (q *qp) accuse() {
	if q.next == 0 || !q.dead {
		return
	}
	t, key, at := new(verbs.TerminateError), uint32(0), uint64(0)
	told := !q.ctx.silent && errors.As(q.in.Err(), &t)
	switch {
	case !told && (q.ctx.silent || q.lax()):
		if q.peerLast || errors.Is(q.cause, verbs.ErrClosed) {
			return
		}
	case !told || !t.Remote || len(t.Header) < taggedLen || t.Header[0]&taggedBit == 0:
		return
	default:
		key, at = binary.BigEndian.Uint32(t.Header[2:]), binary.BigEndian.Uint64(t.Header[6:])
	}
	for i := range q.next {
		r := q.reqs.At(i)
		switch {
		case r.status != verbs.WCSuccess:
			return
		case !told && r.length > 0 &&
			(r.native && r.cut && !writes(r.op) || writes(r.op) && !q.sure(r, q.base+uint64(i))):
			r.status = q.refusal(verbs.WCRemAccessErr, r.op)
			return
		case told && writes(r.op) && !q.sure(r, q.base+uint64(i)) && r.rkey == key && at-r.addr < r.length:
			r.status, r.remote, r.reason = q.refusal(verbs.WCRemAccessErr, r.op), true, q.in.Err()
			return
		}
	}
}

func writes(op verbs.WROpcode) bool { return op == verbs.WRRDMAWrite || op == verbs.WRRDMAWriteWithImm }

// The header of a tagged DDP segment (RFC 5041 section 4.2): control, STag and offset.
const (
	taggedBit = 1 << 7
	taggedLen = 14
)

// refusal returns the status of a request that the peer's device refused with the given one.
// InfiniBand distinguishes a right that the QP lacks, and reports a bad receive as a remote
// operation error.
func (q *qp) refusal(status verbs.WCStatus, op verbs.WROpcode) verbs.WCStatus {
	switch {
	case status != verbs.WCRemAccessErr:
		return status
	case right(op) == 0:
		return verbs.WCRemOpErr
	case q.rights&right(op) == 0:
		return verbs.WCRemInvReqErr
	}
	return status
}

// flush completes all requests. At most one has an error status of its own: the first that failed,
// which must have been issued unless it waited for the peer in vain (unanswered). If the peer
// refused it, those before it were executed, because iWARP preserves order.
func (q *qp) flush() {
	q.accuse()
	if q.hand != nil && q.hand.exceeded != nil {
		q.unanswered()
		q.hand.exceeded = nil // requests posted later are flushed
	}
	before := 0 // requests that precede the one that the peer refused
	for i := range q.begun() {
		if r := q.reqs.At(i); r.status != verbs.WCSuccess {
			if r.remote {
				before = i
			}
			break
		}
	}
	for i, good, failed := 0, true, false; q.reqs.Len() > 0; i++ {
		r := q.reqs.At(0)
		status := r.status
		switch {
		case failed || q.begun() == 0 && status != verbs.WCRetryExcErr || r.refused && !good:
			status = verbs.WCWRFlushErr
		case status != verbs.WCSuccess:
			failed = true
		default:
			answered := !r.waiting && !(r.native && r.cut)
			if good = good && q.next > 0 && answered && (i < before || !r.cut && q.sure(r, q.base)); !good {
				status = verbs.WCWRFlushErr
			}
		}
		q.leave(r, status)
	}
	for q.recvs.Len() > 0 {
		r := q.recvs.At(0)
		q.shut(r)
		if !q.drop {
			q.recvCQ.push(&verbs.WC{ID: r.id, Status: verbs.WCWRFlushErr, QPNum: q.num}, false)
		}
		q.recvs.Pop()
	}
	q.told = 0
	q.adverts.Clear()
}

// blame records why a request failed.
type blame struct {
	id     uint64
	status verbs.WCStatus
	opcode verbs.WCOpcode
	reason error
}

func (q *qp) blame(r *request, status verbs.WCStatus) {
	reason := r.reason
	if reason == nil && r.remote && q.dead {
		reason = q.in.Err()
	}
	q.blamed = append(q.blamed, blame{r.id, status, r.op.Completion(), reason})
}

// Explain implements verbs.ProviderQPExplainer.
func (q *qp) Explain(wc *verbs.WC) (opcode verbs.WCOpcode, known bool, reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.blamed {
		if b.id == wc.ID && b.status == wc.Status {
			return b.opcode, true, b.reason
		}
	}
	return 0, false, nil
}
