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

// ledgerQP is the QP of a device that breaks libibverbs' promises about order and flushing. Every
// request is tracked in a ledger, a shadow of the device's queue, and is posted to the device as
// signaled. In ERR, all requests are flushed by the time the call that moved the QP there returns.
type ledgerQP struct {
	kernelQP
	driver ledgerDriver
	srq    *ledgerSRQ // nil = a receive queue of its own
	sigAll bool
	places int          // requests that fit into the device's send queue
	ord    atomic.Int32 // limit of outstanding Reads and atomics

	sends     ledgerQueue
	recvs     ledgerQueue
	admission admission // guarded by the lock of sends
	bad       bool      // guarded by the lock of sends: the ledger has the request that will fail
	blamed    blamed
	windowOps []windowOp // guarded by windows.mu; in the order of posting
	flushed   bool       // guarded by modify: both queues were flushed

	// Set by the driver when it creates the QP.
	windows    *windowLedger // nil: the QP can be destroyed with windows bound
	least      int           // least number of elements of a receive
	fences     bool          // fenced requests are held back and lose the flag
	needsDepth bool          // a Read or atomic stops the device's queue for good while the depth is 0
	// how long the device may take to complete everything in ERR; 0: it has done so when
	// ibv_modify_qp returns
	flushTime time.Duration
}

// ledgerQueue is the send or receive queue of a QP.
type ledgerQueue struct {
	cq *ledgerCQ
	mu sync.Mutex // guards the fields below and the list being converted; acquired after the CQ's lock
	ledger
	receives bool      // it is the receive queue
	sgls     *sglStore // nil if the driver does not need them
	flushed  bool      // the device has flushed its requests
}

// ledgerDriver is implemented by each driver to adjust requests and completions.
type ledgerDriver interface {
	// split returns the list to post instead of wrs, and which of its requests are first parts.
	split(wrs []SendWR) ([]SendWR, splitReads)
	// adapt changes the requests of a converted list that the device would misinterpret.
	adapt(l *sendList)
	// waits reports whether a request must be held back; reads is the number of outstanding Reads
	// and atomics.
	waits(w *ibverbs.Send, reads int) bool
	// reportedSend and reportedRecv inspect and correct the completion of a request with this
	// opcode or these elements. They are called with the lock of the queue or the SRQ held.
	reportedSend(wc *WC, op WROpcode, sgl []SGE)
	reportedRecv(wc *WC, sgl []SGE)
}

// unknownORD is the depth of a QP before one is set.
const unknownORD = -1

// create creates the QP. Events go to target, which also provides the driver's own behaviour.
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

// attach registers the complete QP with its CQs.
func (q *ledgerQP) attach() {
	q.sends.cq.attach(q)
	q.recvs.cq.attach(q)
}

func (q *ledgerQP) canPostDirect() bool { return false }

// Moved records a state to which a connection manager has moved the QP.
func (q *ledgerQP) Moved(to QPState, reason error) {
	q.kernelQP.Moved(to, reason)
	q.flushIfEnded()
}

// SetDepths implements ProviderQPLimiter.
func (q *ledgerQP) SetDepths(ord, _ int) { q.ord.Store(int32(ord)) }

// Modify checks the change against the state diagram and applies it.
func (q *ledgerQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.change(&attr, mask)
}

// change implements Modify. The caller holds modify.
func (q *ledgerQP) change(attr *QPAttr, mask QPAttrMask) error {
	ord := q.ord.Load()
	if mask&QPAttrMaxRdAtomic != 0 {
		q.ord.Store(int32(attr.MaxRdAtomic)) // before the first post of a QP moving to RTS
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

// forget discards everything posted, without completions.
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

// Query queries the kernel. The state is the provider's, unless the device has moved the QP to an
// error state.
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

// Drain has nothing to wait for: a QP in ERR is already flushed.
func (q *ledgerQP) Drain(ctx context.Context) error { return ctx.Err() }

// Destroy disconnects and flushes the QP and destroys it.
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
