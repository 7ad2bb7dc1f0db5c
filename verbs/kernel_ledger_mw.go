// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"sync"
	"sync/atomic"
)

// windowLedger tracks the QP on which each type 2 window of a context is bound, for a device that
// cannot destroy such a QP. Before a QP is destroyed, its windows are freed and allocated anew,
// which unbinds them; the program's handles stay valid.
//
// A bind or an invalidation takes effect here when the device reports it. The device executes the
// binds of a window in the order of posting, because each names the key of the previous one. A
// report therefore counts only if its bind is later than the last one that counted. A bind that is
// flushed or never reported may have been executed, so it counts as well.
//
// A nil windowLedger does nothing: the device can destroy QPs with bound windows.
type windowLedger struct {
	// use is held for reading by a post with binds, and for writing while a window is freed,
	// because C is given the window's address. It is acquired after QP.modify and before the lock
	// of the CQ.
	use sync.RWMutex

	mu      sync.Mutex // innermost lock; guards the fields below, the windows, and the windowOps of the QPs
	byIndex map[uint32]*ledgerMW
}

// ledgerMW is a type 2 window tracked by a windowLedger.
type ledgerMW struct {
	kernelMW
	pd      *kernelPD
	windows *windowLedger
	key     atomic.Uint32
	lost    error // guarded by use: why the library no longer has the window

	// Guarded by mu.
	posts uint64    // number of binds posted
	last  uint64    // number of the bind in effect
	on    *ledgerQP // the QP on which it is bound, nil = none
	bound uint32    // the key that the bind in effect assigned
}

// windowOp is a bind or the invalidation of a key that the device has not reported yet.
type windowOp struct {
	seq    uint64
	window *ledgerMW // nil = an invalidation
	number uint64    // of the bind
	key    uint32
}

// alloc allocates a window.
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

// enter records the window that the library allocated. The caller holds mu.
func (l *windowLedger) enter(w *ledgerMW) {
	if l.byIndex == nil {
		l.byIndex = make(map[uint32]*ledgerMW)
	}
	l.byIndex[w.kernelMW.key>>8] = w
	w.key.Store(w.kernelMW.key)
}

// bindable implements ownWindow. The caller holds use.
func (w *ledgerMW) bindable() (*kernelMW, error) { return &w.kernelMW, w.lost }

// RKey returns the key assigned at the last allocation.
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

// named reports whether any of the requests binds a window.
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

// posted records a WRBindMW or WRLocalInv entered into the ledger of a QP. A request that binds a
// type 1 window has no Bind.
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
			return // type 1, from a device that wraps this one
		}
		w.posts++
		op.window, op.number, op.key = w, w.posts, wr.RKey
	}
	q.windowOps = append(q.windowOps, op)
}

// withdrawn drops requests that the device refused, from number tail on.
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

// reported records the outcome of requests. The device reports them in the order of posting.
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
			l.ended(q, op, WCWRFlushErr) // dropped when the QP moved to RESET
		}
	}
}

// ended records the outcome of one request. The caller holds mu.
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

// invalidated records that the peer invalidated a key.
func (l *windowLedger) invalidated(key uint32) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unbind(key)
}

// unbind records that a key is invalid. The caller holds mu.
func (l *windowLedger) unbind(key uint32) {
	if w := l.byIndex[key>>8]; w != nil && w.bound == key {
		w.on = nil
	}
}

// release unbinds the windows bound on a QP that no longer executes requests.
func (l *windowLedger) release(q *ledgerQP) {
	if l == nil {
		return
	}
	l.use.Lock()
	defer l.use.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range q.windowOps {
		l.ended(q, op, WCWRFlushErr) // the device will not report it
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

// renew replaces the library's window with a new one. If that fails, the program's handle can only
// be closed. The caller holds use and mu.
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
