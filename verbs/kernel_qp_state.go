// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"
)

// Moved notes where a connection manager has moved the QP. When it is ERR, all requests have been flushed on return.
func (q *kernelQP) Moved(to QPState, reason error) {
	if to == QPStateErr {
		q.fail(reason)
		return
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone || q.qpState() == QPStateErr {
		return
	}
	if to == QPStateRTS && q.ctx.model.lies {
		// It swaps the two depths.
		if attr, err := q.query(); err == nil {
			q.ord.Store(int32(attr.MaxRdAtomic))
		}
	}
	q.state.Store(uint32(to))
}

// Modify checks the change against the state diagram and makes it.
func (q *kernelQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	from := q.qpState()
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	if err := checkModify(q.typ, q.ctx.dev.info.Transport, from, to, mask); err != nil {
		return err
	}
	if err := checkAttrs(&attr, mask, from, q.ctx.attr.PhysPortCnt); err != nil {
		return err
	}
	switch {
	case to == QPStateErr:
		q.failLocked(ErrClosed)
		return nil
	case to == QPStateReset && from != QPStateReset:
		return q.reset()
	}
	if err := callError("ibv_modify_qp", q.c.modify(&attr, mask)); err != nil {
		return explainModify(err, from, to, mask, &attr)
	}
	if mask&QPAttrPort != 0 {
		q.port = attr.PortNum
	}
	if mask&QPAttrAccessFlags != 0 {
		q.access = attr.AccessFlags
	}
	if mask&QPAttrMaxRdAtomic != 0 {
		q.ord.Store(int32(attr.MaxRdAtomic))
	}
	q.state.Store(uint32(to))
	return nil
}

// explainModify adds what was asked for to an errno that says little.
func explainModify(err error, from, to QPState, mask QPAttrMask, attr *QPAttr) error {
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return fmt.Errorf("%w: %v to %v with %v, which the state diagram allows: one of the values is wrong: %+v", err, from, to, mask, *attr)
}

// reset makes the QP as new. What was posted is forgotten, without completions.
func (q *kernelQP) reset() error {
	if q.ctx.model.lies && q.qpState() != QPStateInit && !q.initial {
		return fmt.Errorf("%w: the driver does not reset a QP that has been connected", ErrNotSupported)
	}
	from := q.state.Swap(uint32(QPStateReset)) // no more posts
	q.barrier()
	if err := callError("ibv_modify_qp", q.c.modify(&QPAttr{State: QPStateReset}, QPAttrState)); err != nil {
		q.state.Store(from) // where the device's QP still is
		q.failLocked(err)
		return err
	}
	q.send.mu.Lock()
	q.send.track.drop()
	q.shut()
	q.send.bad, q.send.flushed = false, false
	q.send.mu.Unlock()
	q.recv.mu.Lock()
	q.recv.track.drop()
	q.recv.flushed = false
	q.recv.mu.Unlock()
	q.ended, q.initial, q.marked = false, false, 0
	q.marks.Store(0)
	q.heard.Store(false)
	q.why.Store(nil)
	q.vague.Store(nil)
	q.ord.Store(unknownORD)
	q.failure.renew()
	return nil
}

// barrier returns when no post is in progress that has seen an older state.
func (q *kernelQP) barrier() {
	for _, l := range []sync.Locker{&q.send.direct, &q.send.mu, &q.recv.direct, &q.recv.mu} {
		l.Lock()
		//lint:ignore SA2001 the critical section is the posts'
		l.Unlock()
	}
}

// flushLimit is how long a device that flushes by itself may take.
const flushLimit = 500 * time.Millisecond

// fail moves the QP to the error state. On a tracked device all requests have been flushed on return.
func (q *kernelQP) fail(reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone {
		q.failLocked(reason)
	}
}

func (q *kernelQP) failLocked(reason error) {
	q.because(reason)
	from := QPState(q.state.Swap(uint32(QPStateErr)))
	if q.why.Load() != nil || from != QPStateErr {
		q.tellFailed()
	}
	if q.ended {
		return
	}
	q.ended = true
	q.barrier()
	if from == QPStateReset {
		// The kernel knows no way from RESET to ERR.
		q.initial = true
	} else {
		// One that is in ERR already flushes what has come since; one whose device is gone has nothing
		// to flush.
		q.c.modify(&QPAttr{State: QPStateErr}, QPAttrState)
	}
	if q.tracked {
		q.flush()
	}
}

// flush waits until the device has flushed what it has, and flushes the rest: requests that the device forgot, and those
// that it never got.
func (q *kernelQP) flush() {
	pause := 20 * time.Microsecond
	for start := time.Now(); ; {
		lent := q.collect()
		if lent == 0 || !q.ctx.model.flushes || time.Since(start) > flushLimit {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	q.send.mu.Lock()
	q.shut()
	q.send.mu.Unlock()
	q.flushRest(q.sendCQ, &q.send.account, false)
	q.flushRest(q.recvCQ, &q.recv.account, true)
}

// flushRest flushes what the device will not.
func (q *kernelQP) flushRest(cq *kernelCQ, a *account, recv bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	a.mu.Lock()
	a.track.flush(q.num)
	a.flushed = true
	cq.advance(q, &a.track, recv)
	a.mu.Unlock()
	cq.ring()
}

// collect takes all that the device has completed and returns how many requests of the QP it still has.
func (q *kernelQP) collect() int {
	for _, cq := range []*kernelCQ{q.sendCQ, q.recvCQ} {
		cq.mu.Lock()
		// A CQ that cannot be polled has nothing for us.
		_ = cq.pump(math.MaxInt)
		cq.ring()
		cq.mu.Unlock()
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	return q.send.track.lent + q.recv.track.lent
}
