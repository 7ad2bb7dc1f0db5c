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

// composer does the masked atomics of a QP with CmpSwap. It does one at a time: a guess of the
// word's value is compared, and what the operation makes of it is swapped in; if the guess was
// wrong the answer is the next guess. So the operation takes effect at the CmpSwap that succeeds,
// or at the last one if there is nothing to change.
//
// What is posted behind such a request waits here until it has ended, because it must not overtake
// a CmpSwap that is still to come. What stands before it is in the inner queue already. In ERR
// everything is posted to the inner queue at once, which flushes it in order.
type composer struct {
	sigAll bool
	sink   sink
	marks  *marks // nil = the QP composes nothing

	held     waiting
	again    composing // a request whose next CmpSwap the inner queue had no room for
	flushing bool      // the inner QP is in ERR
	ending   bool      // it is being moved there: nothing is posted until it is
	closing  bool      // Destroy has begun

	last struct { // what the QP knows of the word that it changed last
		addr  uint64
		rkey  uint32
		value uint64
	}
	list []verbs.SendWR // for the inner QP
	one  [1]verbs.SendWR
	sgl  [1]verbs.SGE
}

// marks are the inner requests of a QP that have been posted and not polled, oldest first. Their
// IDs, by which their completions are found, are random numbers in a row, because on error nothing
// else of a completion is defined, and every ID may be the program's. In ERR there may be several,
// otherwise there is one. Of several, completions can come here in any order: a goroutine that
// polls past the provider may have one in hand while another takes those behind it.
type marks struct {
	id    uint64 // the first ID, a multiple of markIDs
	next  uint16 // that of the next request, from id on
	qpNum uint32
	reset bool // what they were has been forgotten, guarded by the CQ's mu
	qp    *qp  // nil = destroyed, or reset; guarded by the CQ's mu

	under []composing // guarded by mu of qp, or if there is none by the CQ's
}

// composing is a masked atomic that is being composed.
type composing struct {
	pending  bool
	mark     uint16 // its ID, from marks.id on
	id       uint64
	opcode   verbs.WROpcode
	signaled bool
	probe    bool // it fails: the inner request only finds out how
	fence    verbs.SendFlags

	addr                 uint64
	rkey                 uint32
	to                   verbs.SGE // the program's sink
	add, addMask         uint64
	compare, compareMask uint64
	swap, swapMask       uint64
	expect               uint64 // the guess
}

// next is what the operation makes of a value.
func (r *composing) next(v uint64) uint64 {
	if r.opcode == verbs.WRMaskedAtomicFetchAndAdd {
		return ext.MaskedFetchAdd(v, r.add, r.addMask)
	}
	return ext.MaskedCmpSwap(v, r.compare, r.compareMask, r.swap, r.swapMask)
}

// take returns the request with an ID. It reports false if there is none: then the ID is the
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

// markIDs is the number of IDs of a QP, more than requests that a queue can hold.
const markIDs = 1 << 16

// nextMark counts from a random number.
var nextMark = func() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(rand.Uint64() &^ (markIDs - 1))
	return n
}()

// begin makes the QP one that composes.
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

// mark gives the QP an ID for its inner requests. The caller holds mu of the CQ, and of the QP once
// it is known.
func (q *qp) mark() {
	q.marks = &marks{id: nextMark.Add(markIDs), qpNum: q.In.Num(), qp: q}
	q.send.marks[q.marks.id] = q.marks
}

func composes(op verbs.WROpcode) bool {
	return op == verbs.WRMaskedAtomicFetchAndAdd || op == verbs.WRMaskedAtomicCmpAndSwp
}

// idle reports whether requests go to the inner queue at once.
func (q *qp) idle() bool {
	return q.held.Len() == 0 && !q.again.pending && !q.ending && (len(q.marks.under) == 0 || q.flushing)
}

// settle is called at the end of what changes what waits. The caller holds mu.
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

// check refuses an atomic that cannot succeed. Behind a request that is being composed the device's
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

// hold queues a request behind one that is being composed.
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

// start begins with a masked atomic behind others, which are posted in the same call, and returns
// how many of all were taken.
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

// issue posts the inner request, behind others. A CmpSwap that guesses wrong reads the word, as
// well as a FetchAdd of 0 would. A request that will fail is one, with the program's sink: the
// device says how it fails, after all that stands before it, and the word stays as it is.
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
	defer clear(q.list) // nothing of the program's is kept
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

// completed takes the completion of an inner request, which becomes the program's or goes on with
// the next one. It reports whether the program is to see it. The caller holds mu of the CQ and of
// the QP.
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
		if lock == nil { // the region has been closed in the meantime
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

// retry goes on with the value that was found.
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

// pump posts what waits and may go. The caller holds mu of the CQ and of the QP.
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

// refused ends a request that the inner QP does not take, though it has no reason to refuse it: the
// library has failed, or the QP has been closed.
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

// fail moves the QP to ERR: a request has failed here. The caller holds mu.
func (q *qp) fail(status verbs.WCStatus) {
	if q.ending || q.flushing || q.closing {
		return
	}
	q.ending = true
	q.failing.Go(func() {
		if m, ok := verbs.Ability[verbs.ProviderQPMover](q.In.Provider()); ok {
			m.Moved(verbs.QPStateErr, status)
		}
		// it fails in RESET, where nothing is flushed
		_ = q.In.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		q.flush()
	})
}

// flush posts what waits to the inner QP, which is in ERR.
func (q *qp) flush() {
	if q.marks == nil {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.In.State() != verbs.QPStateErr {
		return // it has been reset in the meantime
	}
	q.flushing, q.ending = true, false
	q.pump()
	q.settle()
	q.send.settle()
}

// forget drops what waits, because the QP is in RESET.
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

// drop forgets the requests that are not in the inner queue.
func (q *qp) drop() {
	q.again.pending = false
	q.held.Clear()
}

// close is the beginning of Destroy. It reports whether there is something to flush.
func (q *qp) close() bool {
	q.mu.Lock()
	q.closing = true
	busy := q.marks != nil && (q.held.Len() > 0 || q.again.pending || len(q.marks.under) > 0)
	q.mu.Unlock()
	q.failing.Wait()
	return busy
}

// end is the end of Destroy.
func (q *qp) end() {
	if q.marks == nil {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.held.Len() > 0 { // the inner queue had no room, and ends the QP without them
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
