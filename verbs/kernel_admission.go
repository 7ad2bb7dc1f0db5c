// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// An admission keeps from the device what may not wait in its queue. The device gets
//   - a fenced request, without the flag, when no Read or atomic is unanswered, if the driver has a
//     fault with fences;
//   - what else the driver says must wait (see waits), when it need not any more;
//   - any request when the device has a place for it, and none before those that were posted
//     earlier.
//
// Binds do not wait, because the window and the region may be closed meanwhile: a bind goes to the
// device at once, and all requests before it go with it, as they were posted.
//
// A request that waits has a slot in the ledger, slotHeld. It is admitted when completions are
// taken from the device: by a goroutine that polls or waits for events, and by the provider itself
// (selfPoll). The lock of the send queue guards the admission.
type admission struct {
	wrs  []ibverbs.Send // in order, from head on
	ext  []ibverbs.Ext  // of each that has one
	data [][]byte       // of each that is inline, nil for the others
	sges []ibverbs.SGE  // the elements of the requests, from sge on
	head int
	sge  int
}

func (a *admission) len() int { return len(a.wrs) - a.head }

// add appends a request, whose extension is in ext if it has one. Inline data may change when the
// post returns, so they are copied.
func (a *admission) add(c ibverbs.Context, w ibverbs.Send, sgl []ibverbs.SGE, ext []ibverbs.Ext) {
	var x ibverbs.Ext
	if w.Ext != 0 {
		x = ext[w.Ext-1]
		w.Ext = uint32(len(a.ext) + 1)
	}
	a.ext = append(a.ext, x)
	var data []byte
	if isInline(&w) && len(sgl) > 0 {
		data = gather(c, sgl)
		w.Op -= uint32(len(sgl)-1) << ibverbs.SGEsShift
		sgl = []ibverbs.SGE{{Addr: uint64(mapmem.Address(data)), Length: uint32(len(data))}}
	}
	a.wrs, a.data, a.sges = append(a.wrs, w), append(a.data, data), append(a.sges, sgl...)
}

// drop takes the first n requests out.
func (a *admission) drop(n int) {
	for i := range n {
		a.sge += a.wrs[a.head+i].Elements()
		a.data[a.head+i] = nil
	}
	if a.head += n; 2*a.head >= len(a.wrs) {
		a.wrs = a.wrs[:copy(a.wrs, a.wrs[a.head:])]
		a.ext = a.ext[:copy(a.ext, a.ext[a.head:])]
		for i := range a.wrs {
			if w := &a.wrs[i]; w.Ext != 0 {
				w.Ext -= uint32(a.head)
			}
		}
		a.data = a.data[:copy(a.data, a.data[a.head:])]
		a.sges = a.sges[:copy(a.sges, a.sges[a.sge:])]
		a.head, a.sge = 0, 0
	}
}

// gather copies the memory that elements name.
func gather(c ibverbs.Context, sgl []ibverbs.SGE) []byte {
	n := 0
	for _, e := range sgl {
		n += int(e.Length)
	}
	data := make([]byte, n)
	c.Gather(data, sgl)
	return data
}

// Flags of a flat request.
const (
	fenceBit  = uint32(SendFence) << ibverbs.FlagsShift
	inlineBit = uint32(SendInline) << ibverbs.FlagsShift
)

func opcode(w *ibverbs.Send) WROpcode { return WROpcode(w.Opcode()) }
func isRead(w *ibverbs.Send) bool     { return opcode(w) == WRRDMARead }
func isBind(w ibverbs.Send) bool      { return opcode(&w) == WRBindMW }
func isFenced(w *ibverbs.Send) bool   { return w.Op&fenceBit != 0 }
func isInline(w *ibverbs.Send) bool   { return w.Op&inlineBit != 0 }

// waits is for a driver that has a fault with fences only.
func (q *ledgerQP) waits(*ibverbs.Send, int) bool { return false }

// admit gives the device what it may have of the list that has been converted, and holds the rest.
// It returns how many requests the device has taken or the admission holds; if the device fails,
// none are held.
func (q *ledgerQP) admit() (int, error) {
	l := &q.send
	n := 0
	if q.admission.len() == 0 {
		n = q.admissible(l.wrs)
	}
	if slices.ContainsFunc(l.wrs[n:], isBind) {
		if !q.admitAll() {
			return len(l.wrs), nil // to be flushed with the rest
		}
		return q.hand(l.wrs, l.sges, l.ext)
	}
	if n > 0 {
		q.unfence(l.wrs[:n])
		taken, err := q.hand(l.wrs[:n], l.sges, l.ext)
		if err != nil {
			return taken, err
		}
	}
	if n < len(l.wrs) {
		q.hold(n)
	}
	return len(l.wrs), nil
}

// admissible returns how many of the requests the device may have now.
func (q *ledgerQP) admissible(wrs []ibverbs.Send) int {
	room, reads := q.places-q.sends.lent, q.sends.reads
	for i := range wrs {
		w := &wrs[i]
		if i == room || q.fences && isFenced(w) && reads > 0 || q.driver.waits(w, reads) {
			return i
		}
		if needsORD(opcode(w)) {
			reads++
		}
	}
	return len(wrs)
}

// unfence takes the fence from requests that have waited.
func (q *ledgerQP) unfence(wrs []ibverbs.Send) {
	if q.fences {
		for i := range wrs {
			wrs[i].Op &^= fenceBit
		}
	}
}

// hand gives requests to the device and notes those that it takes.
func (q *ledgerQP) hand(wrs []ibverbs.Send, sges []ibverbs.SGE, ext []ibverbs.Ext) (int, error) {
	n, err := postResult("ibv_post_send", q.c.Send(wrs, sges, ext, nil))
	for i := range wrs {
		if i < n || err == nil || errors.Is(err, errBroken) {
			q.sends.lend(wrs[i].ID)
		}
	}
	return n, err
}

// hold keeps the converted requests from the nth on.
func (q *ledgerQP) hold(n int) {
	at := 0
	for i, w := range q.send.wrs {
		count := w.Elements()
		if i >= n {
			q.admission.add(q.ctx.c, w, q.send.sges[at:at+count], q.send.ext)
		}
		at += count
	}
	q.sends.cq.held.Add(int64(len(q.send.wrs) - n))
}

// admitHeld gives the device the requests that need not wait any more. The caller holds the lock of
// the send queue.
func (q *ledgerQP) admitHeld() {
	a := &q.admission
	if st := q.qpState(); a.len() == 0 || st < QPStateRTS || st == QPStateErr {
		return
	}
	if n := q.admissible(a.wrs[a.head:]); n > 0 {
		q.unfence(a.wrs[a.head : a.head+n])
		q.admitFirst(n)
	}
}

// admitAll gives the device all requests that wait, as they were posted. It returns false if the QP
// fails by that.
func (q *ledgerQP) admitAll() bool {
	n := q.admission.len()
	return n == 0 || q.admitFirst(n)
}

// admitFirst gives the device the first n requests that wait. If that fails, so does the QP.
func (q *ledgerQP) admitFirst(n int) bool {
	a := &q.admission
	if _, err := q.hand(a.wrs[a.head:a.head+n], a.sges[a.sge:], a.ext); err != nil {
		// What the device has not got is flushed with the rest. Nothing overtakes it, and the
		// device gets nothing twice.
		q.dropHeld()
		q.sends.poisoned, q.bad = true, true
		if errors.Is(err, errBroken) {
			err = WCWRFlushErr // the connection has ended, and the connection manager will tell why
		}
		go q.fail(err)
		return false
	}
	q.sends.cq.held.Add(int64(-n))
	a.drop(n)
	return true
}

// dropHeld forgets the requests that wait.
func (q *ledgerQP) dropHeld() {
	q.sends.cq.held.Add(int64(-q.admission.len()))
	q.admission = admission{}
}
