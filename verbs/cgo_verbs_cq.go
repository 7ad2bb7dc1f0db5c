// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #cgo noescape gv_poll
// #cgo nocallback gv_poll
// #include "cgo_verbs.h"
import "C"

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// gv_poll writes type WC.
var (
	_ [0]struct{} = [unsafe.Sizeof(WC{}) - C.sizeof_struct_gv_wc]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.Imm64) - unsafe.Offsetof(C.struct_gv_wc{}.imm64)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.InvalidatedRKey) - unsafe.Offsetof(C.struct_gv_wc{}.invalidated_rkey)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.DLIDPathBits) - unsafe.Offsetof(C.struct_gv_wc{}.dlid_path_bits)]struct{}{}
)

// cgoCQ is a completion queue. On devices that keep libibverbs' promises Poll goes straight to the device's queue. On the
// others, and while a QP is being drained, completions go through soft.
type cgoCQ struct {
	ctx    *cgoContext
	owner  *CQ
	c      *C.struct_ibv_cq
	handle C.uintptr_t // c
	ch     *cgoChannel
	cookie uint64
	cqe    atomic.Int64

	tracked bool
	slow    atomic.Bool  // completions go through soft
	lost    atomic.Bool  // it has overflowed
	waiting atomic.Int64 // completions in soft
	watched atomic.Bool  // see watch
	hidden  atomic.Int64 // requests that the device will report and the poller not see

	mu   sync.Mutex // guards what follows; before the locks of the QPs' queues
	gone bool       // destroyed
	qps  map[uint32]*cgoQP
	last *cgoQP // found last
	soft wcQueue
	buf  []WC // of a pump
	// How many completions have come, and of those the ones that wake who waits for solicited ones.
	all, urgent uint64
	armed       bool
	armedUrgent bool   // for solicited ones
	armedAt     uint64 // all, or urgent, when it was armed
	drains      int    // in progress, of QPs of a device that is not tracked
}

// hiddenSlack is how much larger than asked for a device's CQ is made if the device reports requests that the poller does
// not see.
const hiddenSlack = 1024

// pumpBatch is how many completions are taken from the device at a time.
const pumpBatch = 64

// CreateCQ makes a completion queue.
func (c *cgoContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel) (ProviderCQ, error) {
	cq := &cgoCQ{ctx: c, owner: owner, ch: ch.(*cgoChannel), tracked: c.model.tracked, qps: make(map[uint32]*cgoQP)}
	if c.model.tracked {
		cqe = min(cqe+hiddenSlack, max(cqe, c.attr.MaxCQE))
	}
	if err := c.counts.cq.add(); err != nil {
		return nil, err
	}
	cq.cookie = newCookie(cq)
	rc := C.gv_create_cq(c.c, C.int(cqe), C.uint64_t(cq.cookie), cq.ch.c, &cq.c)
	if err := callError("ibv_create_cq", rc); err != nil {
		dropCookie(cq.cookie)
		c.counts.cq.remove()
		return nil, err
	}
	cq.handle = C.uintptr_t(uintptr(unsafe.Pointer(cq.c)))
	cq.ch.retain()
	cq.cqe.Store(int64(cq.c.cqe))
	if cq.tracked {
		cq.slow.Store(true)
	}
	return cq, nil
}

// Poll has completions converted in C, straight into wcs.
func (cq *cgoCQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	if !cq.slow.Load() {
		n := C.gv_poll(cq.handle, (*C.struct_gv_wc)(unsafe.Pointer(&wcs[0])), C.int(len(wcs)), C.uint(cq.ctx.model.withInv))
		if n > 0 && n&C.GV_ERRORS == 0 {
			return int(n), nil
		}
		if n == 0 && !cq.lost.Load() {
			return 0, nil
		}
		return cq.settle(wcs, n)
	}
	return cq.pollSoft(wcs)
}

// settle ends a direct poll in which something is wrong.
func (cq *cgoCQ) settle(wcs []WC, n C.int) (int, error) {
	switch {
	case n < 0:
		return 0, callError("ibv_poll_cq", -1)
	case n == 0:
		return 0, ErrCQOverflow
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.digest(wcs[:n&^C.GV_ERRORS]), nil
}

// digest notes what the errors among completions say, takes out the marks of a drain and returns how many remain.
func (cq *cgoCQ) digest(wcs []WC) int {
	n := 0
	for i := range wcs {
		if wc := &wcs[i]; wc.Status != WCSuccess {
			if q := cq.find(wc.QPNum); q != nil && q.refused(wc) {
				continue
			}
		}
		if n != i {
			wcs[n] = wcs[i]
		}
		n++
	}
	return n
}

// find returns the QP of a number, nil if it is gone.
func (cq *cgoCQ) find(num uint32) *cgoQP {
	if cq.last == nil || cq.last.num != num {
		cq.last = cq.qps[num]
	}
	return cq.last
}

func (cq *cgoCQ) attach(q *cgoQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.qps[q.num] = q
	cq.last = nil
}

func (cq *cgoCQ) detach(q *cgoQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	delete(cq.qps, q.num)
	cq.last = nil
}

// pollSoft is Poll through soft.
func (cq *cgoCQ) pollSoft(wcs []WC) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	want := len(wcs)
	if cq.watched.Load() {
		want = math.MaxInt // an overflow is one, even if it is found only now
	}
	err := cq.pump(want)
	n := cq.soft.take(wcs)
	cq.waiting.Store(int64(cq.soft.len()))
	if !cq.tracked && cq.drains == 0 && cq.soft.len() == 0 {
		cq.slow.Store(false)
	}
	switch {
	case n > 0:
		return n, nil
	case err == nil && cq.lost.Load():
		return 0, ErrCQOverflow
	}
	return 0, err
}

// pump takes completions from the device until soft holds want of them or the device has no more.
func (cq *cgoCQ) pump(want int) error {
	if cq.gone {
		return nil
	}
	if cq.buf == nil {
		cq.buf = make([]WC, pumpBatch)
	}
	for cq.soft.len() < want {
		ask := min(want-cq.soft.len(), pumpBatch)
		n := C.gv_poll(cq.handle, (*C.struct_gv_wc)(unsafe.Pointer(&cq.buf[0])), C.int(ask), C.uint(cq.ctx.model.withInv))
		if n < 0 {
			return callError("ibv_poll_cq", -1)
		}
		got := int(n &^ C.GV_ERRORS)
		if !cq.tracked {
			cq.soft.put(cq.buf[:cq.digest(cq.buf[:got])]...)
		} else {
			for i := range cq.buf[:got] {
				cq.accept(&cq.buf[i])
			}
		}
		if got < ask {
			break
		}
	}
	return nil
}

// relieve takes completions out of the device's queue before those that the poller does not see fill it.
func (cq *cgoCQ) relieve() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// A failure of the library's is for the next Poll.
	_ = cq.pump(cq.soft.len() + hiddenSlack)
}

// watch is called after a post to a QP that has lent requests. If there may not be room for them in a CQ that nobody polls,
// the device is looked at until the CQ has overflowed or been polled: its own queue is longer than that of the program.
func (cq *cgoCQ) watch(lent int) {
	if int(cq.waiting.Load())+lent <= cq.CQE() || !cq.watched.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer cq.watched.Store(false)
		for range 100 {
			time.Sleep(time.Millisecond)
			if cq.lost.Load() || int(cq.waiting.Load())+lent <= cq.CQE() {
				return
			}
			cq.relieve()
		}
	}()
}

// accept gives a completion of the device's to the account of its request.
func (cq *cgoCQ) accept(wc *WC) {
	q := cq.find(wc.QPNum)
	if q == nil {
		return // the QP is gone, and its requests have been flushed
	}
	if q.typ != QPTypeUD {
		wc.Flags &^= WCGRH // rxe sets it always
	}
	switch {
	case wc.ID&idSRQ != 0:
		if id, ok := q.srq.take(wc.ID &^ idSRQ); ok {
			wc.ID = id
			cq.emit(q, wc, true)
		}
	case wc.ID&idRecv != 0:
		q.recv.mu.Lock()
		q.recv.track.complete(wc.ID&^idRecv, wc)
		cq.advance(q, &q.recv.track, true)
		q.recv.mu.Unlock()
	default:
		q.send.mu.Lock()
		q.send.track.complete(wc.ID, wc)
		cq.advance(q, &q.send.track, false)
		q.send.mu.Unlock()
	}
}

// advance moves what has ended from an account, whose queue is locked, to soft.
func (cq *cgoCQ) advance(q *cgoQP, t *track, recv bool) {
	for {
		wc, visible, ok := t.next()
		if !ok {
			return
		}
		if visible {
			cq.emit(q, wc, recv)
		}
	}
}

// emit puts a completion into soft.
func (cq *cgoCQ) emit(q *cgoQP, wc *WC, recv bool) {
	if wc.Status != WCSuccess {
		q.refused(wc)
	}
	if cq.lost.Load() {
		return // what comes after an overflow is lost too
	}
	if cq.soft.len() >= cq.CQE() {
		cq.lost.Store(true)
		go cq.overflowed()
		return
	}
	cq.soft.put(*wc)
	cq.waiting.Store(int64(cq.soft.len()))
	cq.all++
	// siw does not tell which receives are solicited: all of them count.
	if recv || wc.Status != WCSuccess {
		cq.urgent++
	}
}

// ring tells who waits that the provider itself has put something into soft.
func (cq *cgoCQ) ring() {
	if cq.armed && cq.due() {
		cq.armed = false
		cq.ch.post(cq)
	}
}

// due reports whether there has been what the CQ was armed for.
func (cq *cgoCQ) due() bool {
	if cq.lost.Load() {
		return true
	}
	if cq.armedUrgent {
		return cq.urgent != cq.armedAt
	}
	return cq.all != cq.armedAt
}

// ReqNotify arms the CQ.
func (cq *cgoCQ) ReqNotify(solicitedOnly bool) error {
	if !cq.tracked {
		return callError("ibv_req_notify_cq", C.gv_req_notify_cq(cq.c, C.int(boolInt(solicitedOnly))))
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.armed, cq.armedUrgent, cq.armedAt = true, solicitedOnly, cq.all
	if solicitedOnly {
		cq.armedAt = cq.urgent
	}
	return cq.arm()
}

func (cq *cgoCQ) arm() error {
	solicitedOnly := cq.armedUrgent && !cq.ctx.model.noSolicited
	return callError("ibv_req_notify_cq", C.gv_req_notify_cq(cq.c, C.int(boolInt(solicitedOnly))))
}

// notified reports whether an event of the device's is one for the program. If it was for a completion that the program
// does not see, or not yet, the CQ is armed again.
func (cq *cgoCQ) notified() bool {
	if !cq.tracked {
		return true
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.gone || !cq.armed {
		return false
	}
	for range 2 {
		if cq.pump(cq.soft.len()+pumpBatch) != nil || cq.due() {
			cq.armed = false
			return true
		}
		if cq.arm() != nil {
			return true
		}
	}
	return false
}

// CQE is how many completions there is room for.
func (cq *cgoCQ) CQE() int { return int(cq.cqe.Load()) }

// Resize changes the room.
func (cq *cgoCQ) Resize(cqe int) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.ctx.model.tracked {
		cqe = min(cqe+hiddenSlack, max(cqe, cq.ctx.attr.MaxCQE))
	}
	if err := callError("ibv_resize_cq", C.gv_result(C.ibv_resize_cq(cq.c, C.int(cqe)))); err != nil { // 0 or an errno
		return err
	}
	cq.cqe.Store(int64(cq.c.cqe))
	return nil
}

// event notes what an event says about the CQ.
func (cq *cgoCQ) event(ev *AsyncEvent) {
	if ev.Type != EventCQErr {
		return
	}
	ev.Err = ErrCQOverflow
	cq.mu.Lock()
	// What it held can still be polled. A failure of the library's is for the next Poll.
	_ = cq.pump(math.MaxInt)
	cq.lost.Store(true)
	cq.mu.Unlock()
	cq.endQPs()
}

// overflowed is event for a CQ that has overflowed here and not in the device.
func (cq *cgoCQ) overflowed() {
	cq.mu.Lock()
	gone := cq.gone
	cq.mu.Unlock()
	if gone {
		return
	}
	cq.ctx.async.put(AsyncEvent{Type: EventCQErr, CQ: cq.owner, Err: ErrCQOverflow})
	cq.endQPs()
}

// endQPs tells who waits for the CQ, and fails its QPs.
func (cq *cgoCQ) endQPs() {
	cq.mu.Lock()
	if !cq.gone && (cq.armed || !cq.tracked) {
		cq.armed = false
		cq.ch.post(cq)
	}
	qps := make([]*cgoQP, 0, len(cq.qps))
	for _, q := range cq.qps {
		qps = append(qps, q)
	}
	cq.mu.Unlock()
	for _, q := range qps {
		q.fail(ErrCQOverflow)
	}
}

// Destroy destroys the CQ. All its events have been acknowledged as they were read, so the library has nothing to wait
// for.
func (cq *cgoCQ) Destroy() error {
	cq.mu.Lock()
	cq.gone = true
	cq.mu.Unlock()
	cq.ch.forget(cq)
	err := callError("ibv_destroy_cq", C.gv_result(C.ibv_destroy_cq(cq.c))) // 0 or an errno
	dropCookie(cq.cookie)
	cq.ctx.counts.cq.remove()
	return errors.Join(err, cq.ch.release())
}

// wcQueue is a queue of completions.
type wcQueue struct {
	wcs  []WC
	head int
}

func (q *wcQueue) len() int { return len(q.wcs) - q.head }

func (q *wcQueue) put(wcs ...WC) { q.wcs = append(q.wcs, wcs...) }

func (q *wcQueue) take(wcs []WC) int {
	n := copy(wcs, q.wcs[q.head:])
	if q.head += n; q.head == len(q.wcs) {
		q.wcs, q.head = q.wcs[:0], 0
	}
	return n
}
