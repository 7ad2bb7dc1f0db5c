// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// composer composes the masked atomics of a QP from CmpSwaps, one atomic at a time: each CmpSwap
// compares the word with a guess of its value and swaps in the result of the operation; if the
// guess was wrong, the returned value is the next guess. The operation takes effect at the CmpSwap
// that succeeds, or at the last one if there is nothing to change.
//
// Requests posted after such a request wait here until it is done, because they must not overtake a
// CmpSwap still to be posted. Requests before it are already in the inner queue. In ERR everything
// is posted to the inner queue at once, which flushes it in order.
type composer struct {
	sigAll bool
	sink   sink
	marks  *marks // nil if the QP composes nothing

	held     waiting
	again    composing // a request whose next CmpSwap did not fit the inner queue
	flushing bool      // the inner QP is in ERR
	ending   bool      // the inner QP is being moved to ERR: nothing is posted until it is there
	closing  bool      // Destroy has begun

	last struct { // the word that the QP changed last
		addr  uint64
		rkey  uint32
		value uint64
	}
	list []verbs.SendWR // for the inner QP
	one  [1]verbs.SendWR
	sgl  [1]verbs.SGE
}

// marks tracks the inner requests of a QP that were posted and not yet polled, oldest first. Their
// completions are recognized by ID, because a failed completion has little else that is defined.
// The program may use any ID, so those of inner requests count up from a random number. There is
// more than one only in ERR, and then their completions may get here in any order: a goroutine that
// polls past the provider may hold one while another polls the next.
type marks struct {
	id    uint64 // the first ID, a multiple of markIDs
	next  uint16 // the next request's ID, relative to id
	qpNum uint32
	reset bool // the QP was reset, so the requests are dropped; guarded by the CQ's mu
	qp    *qp  // nil if destroyed or reset; guarded by the CQ's mu

	under []composing // guarded by the QP's mu, or by the CQ's if qp is nil
}

// composing is a masked atomic being composed.
type composing struct {
	pending  bool
	mark     uint16 // its ID, relative to marks.id
	id       uint64
	opcode   verbs.WROpcode
	signaled bool
	probe    bool // it will fail, and the inner request only finds out how
	fence    verbs.SendFlags

	addr                 uint64
	rkey                 uint32
	to                   verbs.SGE // the program's sink
	add, addMask         uint64
	compare, compareMask uint64
	swap, swapMask       uint64
	expect               uint64 // the guess
}

// next returns the result of the operation on a value.
func (r *composing) next(v uint64) uint64 {
	if r.opcode == verbs.WRMaskedAtomicFetchAndAdd {
		return ext.MaskedFetchAdd(v, r.add, r.addMask)
	}
	return ext.MaskedCmpSwap(v, r.compare, r.compareMask, r.swap, r.swapMask)
}

// take removes and returns the request with an ID. It reports false if the ID is one of the
// program's.
func (m *marks) take(id uint64) (r composing, ok bool) {
	for i := range m.under {
		if m.under[i].mark == uint16(id) {
			r = m.under[i]
			m.under = append(m.under[:i], m.under[i+1:]...)
			return r, true
		}
	}
	return r, false
}

// markIDs is the number of IDs of a QP, more than the requests that a queue can hold.
const markIDs = 1 << 16

// nextMark counts up from a random number.
var nextMark = func() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(rand.Uint64() &^ (markIDs - 1))
	return n
}()

// begin enables composing on the QP.
func (q *qp) begin(sigAll bool) (err error) {
	q.sigAll = sigAll
	if q.sink, err = q.dom.sinks.take(q.dom.In); err != nil {
		return err
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mark()
	return nil
}

// mark allocates the IDs for the QP's inner requests. The caller holds mu of the CQ, and of the QP
// unless it is being created.
func (q *qp) mark() {
	q.marks = &marks{id: nextMark.Add(markIDs), qpNum: q.In.Num(), qp: q}
	q.send.marks[q.marks.id] = q.marks
}

func composes(op verbs.WROpcode) bool {
	return op == verbs.WRMaskedAtomicFetchAndAdd || op == verbs.WRMaskedAtomicCmpAndSwp
}

// idle reports whether requests go to the inner queue directly.
func (q *qp) idle() bool {
	return q.held.Len() == 0 && !q.again.pending && !q.ending && (len(q.marks.under) == 0 || q.flushing)
}

// settle is called after every change of what waits. The caller holds mu.
func (q *qp) settle() {
	if q.marks == nil {
		return
	}
	busy := q.held.Len() > 0 || q.again.pending || len(q.marks.under) > 0
	q.shut.Store(busy || q.ending)
	q.send.work(q, busy)
}

// post queues requests. The caller holds mu.
func (q *qp) post(wrs []verbs.SendWR) (int, error) {
	if q.marks == nil {
		return q.pass(wrs)
	}
	q.shut.Store(true)
	for i := 0; i < len(wrs); {
		wr := &wrs[i]
		if !q.idle() {
			if err := q.hold(wr); err != nil {
				return i, err
			}
			i++
			continue
		}
		run := i
		for run < len(wrs) && !composes(wrs[run].Opcode) {
			run++
		}
		var refused error
		if run < len(wrs) {
			refused = q.check(&wrs[run])
		}
		var n int
		var err error
		if run == len(wrs) || refused != nil {
			n, err = q.pass(wrs[i:run])
		} else {
			n, err = q.start(wrs[i:run], &wrs[run])
		}
		if i += n; err != nil {
			return i, err
		}
		if refused != nil {
			return i, refused
		}
	}
	return len(wrs), nil
}

// check refuses an atomic that cannot succeed. After a request that is being composed, the device's
// own refusal would come too late.
func (q *qp) check(wr *verbs.SendWR) error {
	switch {
	case wr.Opcode != verbs.WRAtomicFetchAndAdd && wr.Opcode != verbs.WRAtomicCmpAndSwp && !composes(wr.Opcode):
		return nil
	case wr.RemoteAddr%8 != 0:
		return fmt.Errorf("%w: %v at %#x, which is not a multiple of 8", verbs.ErrInvalid, wr.Opcode, wr.RemoteAddr)
	case composes(wr.Opcode) && q.dom.foreign(wr.SGL[0]):
		return fmt.Errorf("%w: %v with a sink in a dma-buf", verbs.ErrNotSupported, wr.Opcode)
	}
	return nil
}

// hold queues a request that must wait for the one being composed.
func (q *qp) hold(wr *verbs.SendWR) error {
	if err := q.check(wr); err != nil {
		return err
	}
	if most := q.In.Cap().MaxSendWR; q.held.Len() == most {
		return fmt.Errorf("%w: %d requests wait for a masked atomic", verbs.ErrQueueFull, most)
	}
	q.held.hold(wr)
	return nil
}

// start starts a masked atomic. The requests before it are posted in the same call. It returns how
// many of them all were posted.
func (q *qp) start(before []verbs.SendWR, wr *verbs.SendWR) (int, error) {
	r := composing{id: wr.ID, opcode: wr.Opcode, signaled: q.sigAll || wr.Flags&verbs.SendSignaled != 0,
		fence: wr.Flags & verbs.SendFence, addr: wr.RemoteAddr, rkey: wr.RKey, to: wr.SGL[0], add: wr.Add,
		addMask: wr.AddMask,
		compare: wr.Compare, compareMask: wr.CompareMask, swap: wr.Swap, swapMask: wr.SwapMask}
	if _, lock := q.dom.writable(r.to); lock != nil {
		lock.RUnlock()
	} else {
		r.probe = true
	}
	if q.last.addr == r.addr && q.last.rkey == r.rkey {
		r.expect = q.last.value
	}
	return q.issue(before, &r)
}

// issue posts the inner request after others. A CmpSwap with a wrong guess reads the word just as a
// FetchAdd of 0 does. A request that is bound to fail is posted as a FetchAdd of 0 with the
// program's sink: the device reports how it fails, after everything before it, and the word keeps
// its value.
func (q *qp) issue(before []verbs.SendWR, r *composing) (int, error) {
	r.mark = q.marks.next
	wr := verbs.SendWR{ID: q.marks.id | uint64(r.mark), Opcode: verbs.WRAtomicCmpAndSwp,
		Flags: verbs.SendSignaled | r.fence, SGL: q.sgl[:], RemoteAddr: r.addr, RKey: r.rkey, Compare: r.expect,
		Swap: r.next(r.expect)}
	q.sgl[0] = q.sink.sge
	if r.probe {
		wr.Opcode, wr.Compare, wr.Swap = verbs.WRAtomicFetchAndAdd, 0, 0
		if !q.flushing {
			q.sgl[0] = r.to
		}
	}
	q.list = append(append(q.list[:0], before...), wr)
	defer clear(q.list) // retain nothing of the program's
	q.send.posting()
	n, err := q.pass(q.list)
	if n < len(q.list) {
		q.send.polled()
		return n, err
	}
	r.fence = 0
	q.marks.next++
	q.marks.under = append(q.marks.under, *r)
	return n, nil
}

// completed handles the completion of an inner request, which either becomes the program's
// completion or leads to the next CmpSwap. It reports whether the program is to see it. The caller
// holds mu of the CQ and of the QP.
func (q *qp) completed(r *composing, wc *verbs.WC) bool {
	switch {
	case wc.Status != verbs.WCSuccess:
		q.flushing = true
	case r.probe && q.flushing:
		wc.Status = verbs.WCWRFlushErr
	case r.probe:
		wc.Status = verbs.WCLocProtErr
		q.fail(wc.Status)
	default:
		v := q.sink.value()
		next := r.next(v)
		if v != r.expect && v != next {
			return q.retry(r, v, wc)
		}
		q.last.addr, q.last.rkey, q.last.value = r.addr, r.rkey, next
		mem, lock := q.dom.writable(r.to)
		if lock == nil { // the region was closed in the meantime
			wc.Status = verbs.WCLocProtErr
			q.fail(wc.Status)
			break
		}
		store(mem, v)
		lock.RUnlock()
		wc.ID, wc.Opcode, wc.ByteLen = r.id, r.opcode.Completion(), 8
		return r.signaled
	}
	wc.ID = r.id
	return true
}

// retry posts the next CmpSwap with the value that was found.
func (q *qp) retry(r *composing, v uint64, wc *verbs.WC) bool {
	wc.ID = r.id
	if q.flushing || q.closing {
		wc.Status = verbs.WCWRFlushErr
		return true
	}
	r.expect = v
	switch _, err := q.issue(nil, r); {
	case err == nil:
		return false
	case errors.Is(err, verbs.ErrQueueFull):
		q.again, q.again.pending = *r, true
		return false
	}
	wc.Status = verbs.WCLocQPOpErr
	q.fail(wc.Status)
	return true
}

// pump posts the waiting requests that can be posted. The caller holds mu of the CQ and of the QP.
func (q *qp) pump() {
	if q.again.pending && !q.ending {
		q.again.probe = q.again.probe || q.flushing
		_, err := q.issue(nil, &q.again)
		if errors.Is(err, verbs.ErrQueueFull) {
			return
		}
		q.again.pending = false
		if err != nil {
			q.refused(q.again.id)
		}
	}
	for q.held.Len() > 0 && !q.ending && (q.flushing || len(q.marks.under) == 0) {
		h := q.held.At(0)
		var err error
		if composes(h.wr.Opcode) {
			_, err = q.start(nil, &h.wr)
		} else {
			_, err = q.pass(h.list(&q.one, &q.sgl))
		}
		if errors.Is(err, verbs.ErrQueueFull) {
			return
		}
		q.send.moved++
		id := h.wr.ID
		q.held.Pop()
		if err != nil {
			q.refused(id)
		}
	}
}

// refused completes a request that the inner QP rejected for no fault of its own: the library
// failed, or the QP was closed.
func (q *qp) refused(id uint64) {
	wc := verbs.WC{ID: id, Status: verbs.WCLocQPOpErr, QPNum: q.In.Num()}
	if q.flushing {
		wc.Status = verbs.WCWRFlushErr
	}
	q.send.gate.Lock()
	q.send.shut.Store(true)
	q.send.gate.Unlock()
	q.send.late = append(q.send.late, wc)
	q.fail(wc.Status)
}

// fail moves the QP to ERR because a request failed locally. The caller holds mu.
func (q *qp) fail(status verbs.WCStatus) {
	if q.ending || q.flushing || q.closing {
		return
	}
	q.ending = true
	q.failing.Go(func() {
		if m, ok := verbs.Ability[verbs.ProviderQPMover](q.In.Provider()); ok {
			m.Moved(verbs.QPStateErr, status)
		}
		// this fails in RESET, where nothing is flushed
		_ = q.In.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		q.flush()
	})
}

// flush posts all waiting requests to the inner QP, which is in ERR.
func (q *qp) flush() {
	if q.marks == nil {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.In.State() != verbs.QPStateErr {
		return // it was reset in the meantime
	}
	q.flushing, q.ending = true, false
	q.pump()
	q.settle()
	q.send.settle()
}

// forget drops the waiting requests because the QP is in RESET.
func (q *qp) forget() {
	if q.marks == nil {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop()
	if len(q.marks.under) > 0 {
		q.marks.qp, q.marks.reset = nil, true
		q.mark()
	}
	q.flushing, q.ending = false, false
	q.last.addr, q.last.rkey, q.last.value = 0, 0, 0
	q.settle()
}

// drop drops the requests that are not in the inner queue.
func (q *qp) drop() {
	q.again.pending = false
	q.held.Clear()
}

// close starts Destroy. It reports whether there is something to flush.
func (q *qp) close() bool {
	q.mu.Lock()
	q.closing = true
	busy := q.marks != nil && (q.held.Len() > 0 || q.again.pending || len(q.marks.under) > 0)
	q.mu.Unlock()
	q.failing.Wait()
	return busy
}

// end finishes Destroy.
func (q *qp) end() {
	if q.marks == nil {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.held.Len() > 0 { // they did not fit the inner queue, which was destroyed without them
		q.refused(q.held.At(0).wr.ID)
		q.held.Pop()
	}
	q.drop()
	if q.marks.qp = nil; len(q.marks.under) == 0 {
		delete(q.send.marks, q.marks.id)
	}
	q.send.work(q, false)
	q.send.settle()
	q.dom.sinks.give(q.sink)
}
