// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"math"
	"time"
)

// pumpBatch is how many completions are taken from the device at a time.
const pumpBatch = 64

// digest notes what the errors among completions say, takes out the marks of a drain and returns how many remain.
func (cq *kernelCQ) digest(wcs []WC) int {
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
func (cq *kernelCQ) find(num uint32) *kernelQP {
	if cq.last == nil || cq.last.num != num {
		cq.last = cq.qps[num]
	}
	return cq.last
}

// pollSoft is Poll through soft.
func (cq *kernelCQ) pollSoft(wcs []WC) (int, error) {
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
func (cq *kernelCQ) pump(want int) error {
	if cq.gone {
		return nil
	}
	if cq.buf == nil {
		cq.buf = make([]WC, pumpBatch)
	}
	for cq.soft.len() < want {
		ask := min(want-cq.soft.len(), pumpBatch)
		n := cq.c.poll(cq.buf[:ask], cq.ctx.model.withInv, nil)
		if n < 0 {
			return callError("ibv_poll_cq", -1)
		}
		got := n &^ pollErrors
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
func (cq *kernelCQ) relieve() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// A failure of the library's is for the next Poll.
	_ = cq.pump(cq.soft.len() + hiddenSlack)
}

// watch is called after a post to a QP that has so many requests under way. The device is looked at for as long as requests
// wait in gates, or many completions are expected that the poller does not see; and if there may not be room for all in a CQ
// that nobody polls, until it has overflowed or been polled, or 100 ms have passed: the device's own queue is longer than that
// of the program.
func (cq *kernelCQ) watch(requests int) {
	if (cq.needed() || cq.full(requests)) && cq.watched.CompareAndSwap(false, true) {
		go cq.attend(requests)
	}
}

// full reports whether there may not be room for so many completions more.
func (cq *kernelCQ) full(requests int) bool {
	return int(cq.waiting.Load())+requests > cq.CQE() && !cq.lost.Load()
}

// needed reports whether completions have to be taken from the device, whoever polls.
func (cq *kernelCQ) needed() bool { return cq.held.Load() > 0 || cq.hidden.Load() > hiddenSlack/2 }

// attend is the watch. It looks the more rarely, the longer nothing has come.
func (cq *kernelCQ) attend(requests int) {
	const least, most = 20 * time.Microsecond, 50 * time.Millisecond
	begin := time.Now()
	for moved := begin; ; {
		time.Sleep(min(max(time.Since(moved)/16, least), most))
		before := cq.held.Load() + cq.hidden.Load()
		cq.relieve()
		if cq.held.Load()+cq.hidden.Load() != before {
			moved = time.Now()
		}
		if cq.needed() || cq.full(requests) && time.Since(begin) < 100*time.Millisecond {
			continue
		}
		cq.watched.Store(false)
		// A post may have seen the watch at its end.
		if !cq.needed() || !cq.watched.CompareAndSwap(false, true) {
			return
		}
	}
}

// accept gives a completion of the device's to the account of its request.
func (cq *kernelCQ) accept(wc *WC) {
	q := cq.find(wc.QPNum)
	if q == nil {
		return // the QP is gone, and its requests have been flushed
	}
	if q.typ != QPTypeUD {
		wc.Flags &^= WCGRH // rxe sets it always
	}
	switch {
	case wc.ID == idEmpty: // it was flushed
	case wc.ID&idSRQ != 0:
		q.heard.Store(true)
		if id, ok := q.srq.take(wc.ID &^ idSRQ); ok {
			wc.ID = id
			cq.emit(q, wc, true)
		}
	case wc.ID&idRecv != 0:
		q.heard.Store(true)
		q.recv.mu.Lock()
		q.recv.track.complete(wc.ID&^idRecv, wc)
		cq.advance(q, &q.recv.track, true)
		q.recv.mu.Unlock()
	default:
		if wc.Opcode == WCRDMARead {
			q.heard.Store(true)
		}
		q.send.mu.Lock()
		q.send.track.complete(wc.ID, wc)
		cq.advance(q, &q.send.track, false)
		q.release()
		q.send.mu.Unlock()
	}
}

// advance moves what has ended from an account, whose queue is locked, to soft.
func (cq *kernelCQ) advance(q *kernelQP, t *track, recv bool) {
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
func (cq *kernelCQ) emit(q *kernelQP, wc *WC, recv bool) {
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
