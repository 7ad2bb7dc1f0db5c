// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"sync"
	"sync/atomic"
)

// A windowLedger knows on which QP each window of type 2 of a context is bound, for a device that
// cannot destroy such a QP. When a QP is to be destroyed, its windows are freed and made anew: they
// are unbound then, and the program's handles remain.
//
// A bind or an invalidation counts when the device has reported it. The device executes the binds
// of a window in the order of posting, because each names the key of the one before it; so a report
// counts only if it is of a later bind than the last that did. A bind that is flushed, or never
// reported, may have been executed, and counts.
//
// A windowLedger that is nil does nothing: the device's windows do not matter to its QPs.
type windowLedger struct {
	// use is held for reading by a post with binds, and for writing where a window is freed,
	// because C gets the window's address. It is taken after QP.modify and before the lock of the
	// CQ.
	use sync.RWMutex

	mu      sync.Mutex // a leaf, guards what follows, the windows and the windowOps of the QPs
	byIndex map[uint32]*ledgerMW
}

// ledgerMW is a window of type 2 in a windowLedger.
type ledgerMW struct {
	kernelMW
	pd      *kernelPD
	windows *windowLedger
	key     atomic.Uint32
	lost    error // guarded by use: why the library has no such window any more

	// Guarded by mu.
	posts uint64    // binds that were posted
	last  uint64    // the number of the one that counts
	on    *ledgerQP // where that has bound it, nil = it is not bound
	bound uint32    // the key that this one gave it
}

// windowOp is a bind, or the invalidation of a key, that the device has not reported.
type windowOp struct {
	seq    uint64
	window *ledgerMW // nil: an invalidation
	number uint64    // of the bind
	key    uint32
}

// alloc makes a window.
func (l *windowLedger) alloc(pd *kernelPD) (*ledgerMW, error) {
	w := &ledgerMW{pd: pd, windows: l}
	if err := w.kernelMW.alloc(pd, MWType2); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(w)
	return w, nil
}

// enter notes the window that the library has made. The caller holds mu.
func (l *windowLedger) enter(w *ledgerMW) {
	if l.byIndex == nil {
		l.byIndex = make(map[uint32]*ledgerMW)
	}
	l.byIndex[w.kernelMW.key>>8] = w
	w.key.Store(w.kernelMW.key)
}

// bindable implements ownWindow. The caller holds use.
func (w *ledgerMW) bindable() (*kernelMW, error) { return &w.kernelMW, w.lost }

// RKey returns the key given at the last allocation.
func (w *ledgerMW) RKey() uint32 { return w.key.Load() }

// Dealloc frees the window.
func (w *ledgerMW) Dealloc() error {
	l := w.windows
	l.use.Lock()
	defer l.use.Unlock()
	if w.lost != nil {
		w.ctx.counts.mw.remove()
		return nil
	}
	w.lost = ErrClosed
	l.mu.Lock()
	delete(l.byIndex, w.kernelMW.key>>8)
	w.on = nil
	l.mu.Unlock()
	return w.kernelMW.Dealloc()
}

// named reports whether requests bind windows.
func (l *windowLedger) named(wrs []SendWR) bool {
	if l != nil {
		for i := range wrs {
			if wrs[i].Opcode == WRBindMW {
				return true
			}
		}
	}
	return false
}

// posted notes a WRBindMW or WRLocalInv that is entered into the ledger of a QP. The bind of a
// window of type 1 has no Bind.
func (l *windowLedger) posted(q *ledgerQP, seq uint64, wr *SendWR) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	op := windowOp{seq: seq, key: wr.InvalidateRKey}
	if wr.Opcode == WRBindMW {
		if wr.Bind == nil {
			return
		}
		w, _ := Ability[*ledgerMW](wr.Bind.MW.p)
		if w == nil {
			return // of type 1, by a device that wraps this one
		}
		w.posts++
		op.window, op.number, op.key = w, w.posts, wr.RKey
	}
	q.windowOps = append(q.windowOps, op)
}

// withdrawn forgets what the device has refused, from the number tail on.
func (l *windowLedger) withdrawn(q *ledgerQP, tail uint64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(q.windowOps); n > 0 && q.windowOps[n-1].seq >= tail; n-- {
		q.windowOps = q.windowOps[:n-1]
	}
}

// reported notes what has become of requests: the device reports them in the order of posting.
func (l *windowLedger) reported(q *ledgerQP, seq uint64, status WCStatus) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(q.windowOps) > 0 && q.windowOps[0].seq <= seq {
		op := q.windowOps[0]
		q.windowOps = q.windowOps[1:]
		if op.seq == seq {
			l.ended(q, op, status)
		} else {
			l.ended(q, op, WCWRFlushErr) // forgotten when the QP went to RESET
		}
	}
}

// ended notes what has become of a request. The caller holds mu.
func (l *windowLedger) ended(q *ledgerQP, op windowOp, status WCStatus) {
	switch w := op.window; {
	case status != WCSuccess && status != WCWRFlushErr:
	case w == nil:
		if status == WCSuccess {
			l.unbind(op.key)
		}
	case op.number > w.last:
		w.last, w.on, w.bound = op.number, q, op.key
	}
}

// invalidated notes that a peer has invalidated a key.
func (l *windowLedger) invalidated(key uint32) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unbind(key)
}

// unbind notes that a key is invalid. The caller holds mu.
func (l *windowLedger) unbind(key uint32) {
	if w := l.byIndex[key>>8]; w != nil && w.bound == key {
		w.on = nil
	}
}

// release unbinds the windows that are bound on a QP, which executes nothing any more.
func (l *windowLedger) release(q *ledgerQP) {
	if l == nil {
		return
	}
	l.use.Lock()
	defer l.use.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range q.windowOps {
		l.ended(q, op, WCWRFlushErr) // it is not reported any more
	}
	q.windowOps = nil
	var on []*ledgerMW
	for _, w := range l.byIndex {
		if w.on == q {
			on = append(on, w)
		}
	}
	for _, w := range on {
		l.renew(w)
	}
}

// renew makes a window anew. If that fails, what the program has is one that can only be closed.
// The caller holds use and mu.
func (l *windowLedger) renew(w *ledgerMW) {
	if w.c.Dealloc() != nil {
		return // it is still bound
	}
	delete(l.byIndex, w.kernelMW.key>>8)
	w.on = nil
	c, err := w.pd.c.AllocMW(int(MWType2))
	if err != nil {
		w.lost = callError("ibv_alloc_mw", err)
		return
	}
	w.c, w.kernelMW.key = c, c.RKey()
	l.enter(w)
}
