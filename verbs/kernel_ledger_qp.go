// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// ledgerQP is the QP of a device that does not keep libibverbs' promises about order and flushing,
// so every request is in a ledger, and each one is signalled to the device. In ERR all requests
// have been flushed when the call that has led there returns.
type ledgerQP struct {
	kernelQP
	driver ledgerDriver
	srq    *ledgerSRQ // nil = a receive queue of its own
	sigAll bool
	places int          // of the device's send queue
	ord    atomic.Int32 // Reads and atomics in progress that the peer takes

	sends     ledgerQueue
	recvs     ledgerQueue
	admission admission // guarded by the lock of sends
	bad       bool      // guarded by the lock of sends: the request that will fail is in the ledger
	blamed    blamed
	windowOps []windowOp // guarded by windows.mu: in the order of posting
	flushed   bool       // guarded by modify: both queues have been

	// What the driver says when it makes the QP.
	windows    *windowLedger // nil: windows do not matter to the QP
	least      int           // elements that a receive must have
	fences     bool          // fenced requests wait for admission, and lose the flag
	needsDepth bool          // a Read or atomic that may not be in progress stops the device's queue for good
	// how long the device may take to complete everything in ERR; 0: it has done that when
	// ibv_modify_qp returns
	flushTime time.Duration
}

// ledgerQueue is a queue of a QP.
type ledgerQueue struct {
	cq *ledgerCQ
	mu sync.Mutex // guards what follows, and the list that is converted; after that of the CQ
	ledger
	receives bool      // it is the receive queue
	sgls     *sglStore // nil if the driver does not look at them
	flushed  bool      // the device has flushed all that it had
}

// ledgerDriver is what a driver does in its own way.
type ledgerDriver interface {
	// split returns the list that the device gets instead of wrs, and which requests in it are
	// first parts.
	split(wrs []SendWR) ([]SendWR, splitReads)
	// adapt changes those requests of a converted list that the device would misunderstand.
	adapt(l *sendList)
	// waits reports whether a request must wait; reads is the number of Reads and atomics that are
	// unanswered.
	waits(w *ibverbs.Send, reads int) bool
	// reportedSend and reportedRecv learn what the device has reported of a request, of this opcode
	// or with these elements, and correct it. They are called with the lock of the queue, or of the
	// SRQ.
	reportedSend(wc *WC, op WROpcode, sgl []SGE)
	reportedRecv(wc *WC, sgl []SGE)
}

// unknownORD is the depth of a QP for which none has been set.
const unknownORD = -1

// create makes the QP. Events go to target, which does what the driver does in its own way.
func (q *ledgerQP) create(pd *kernelPD, owner *QP, cfg ProviderQPConfig, want QPCap, target interface {
	asyncTarget
	ledgerDriver
}) error {
	var err error
	if q.sends.cq, q.recvs.cq, q.srq, err = ownQueues[*ledgerCQ, *ledgerSRQ](&cfg); err != nil {
		return err
	}
	q.sendCQ, q.recvCQ = &q.sends.cq.kernelCQ, &q.recvs.cq.kernelCQ
	if q.srq != nil {
		q.kernelQP.srq = &q.srq.kernelSRQ
	}
	if err := q.kernelQP.create(pd, owner, cfg, want, target); err != nil {
		return err
	}
	q.driver = target
	q.sigAll, q.places = cfg.SigAll, q.cap.MaxSendWR
	q.posts = [2]sync.Locker{&q.sends.mu, &q.recvs.mu}
	q.ord.Store(unknownORD)
	q.sends.hidden, q.recvs.receives = &q.sends.cq.hidden, true
	return nil
}

// attach makes the CQs know the QP, which is complete.
func (q *ledgerQP) attach() {
	q.sends.cq.attach(q)
	q.recvs.cq.attach(q)
}

func (q *ledgerQP) canPostDirect() bool { return false }

// Moved notes where a connection manager has moved the QP.
func (q *ledgerQP) Moved(to QPState, reason error) {
	q.kernelQP.Moved(to, reason)
	q.flushIfEnded()
}

// SetDepths implements ProviderQPLimiter.
func (q *ledgerQP) SetDepths(ord, _ int) { q.ord.Store(int32(ord)) }

// Modify checks the change against the state diagram and makes it.
func (q *ledgerQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.change(&attr, mask)
}

// change is Modify. The caller holds modify.
func (q *ledgerQP) change(attr *QPAttr, mask QPAttrMask) error {
	ord := q.ord.Load()
	if mask&QPAttrMaxRdAtomic != 0 {
		q.ord.Store(int32(attr.MaxRdAtomic)) // before the first post of a QP that goes to RTS
	}
	err := q.kernelQP.change(attr, mask)
	if err != nil {
		q.ord.Store(ord)
	} else if mask&QPAttrState != 0 && attr.State == QPStateReset {
		q.forget()
	}
	q.flushEnded()
	return err
}

// forget drops all that was posted, without completions.
func (q *ledgerQP) forget() {
	q.sends.mu.Lock()
	q.sends.drop()
	q.dropHeld()
	q.bad, q.sends.flushed = false, false
	q.sends.mu.Unlock()
	q.recvs.mu.Lock()
	q.recvs.drop()
	q.recvs.flushed = false
	q.recvs.mu.Unlock()
	q.flushed = false
	q.blamed.forget()
	q.ord.Store(unknownORD)
}

func (q *ledgerQP) event(ev *AsyncEvent) {
	q.kernelQP.event(ev)
	q.flushIfEnded()
}

// Query asks the kernel. The state is the provider's, unless the device has left it for an error.
func (q *ledgerQP) Query() (QPAttr, error) {
	attr, err := q.kernelQP.Query()
	q.flushIfEnded()
	return attr, err
}

// fail moves the QP to the error state.
func (q *ledgerQP) fail(reason error) {
	q.kernelQP.fail(reason)
	q.flushIfEnded()
}

// Drain has nothing to wait for: a QP in ERR has been flushed.
func (q *ledgerQP) Drain(ctx context.Context) error { return ctx.Err() }

// Destroy cuts the connection, has all requests flushed and destroys the QP.
func (q *ledgerQP) Destroy() error {
	q.failure.fire()
	q.modify.Lock()
	defer q.modify.Unlock()
	q.cut()
	q.flushEnded()
	q.windows.release(q)
	err := q.remove()
	q.sends.cq.detach(q)
	q.recvs.cq.detach(q)
	return err
}
