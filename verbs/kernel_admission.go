// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// admission holds back requests that must not wait in the device's own queue. It passes to the
// device
//   - a fenced request, with the flag cleared, once no Read or atomic is outstanding, if the driver
//     mishandles fences;
//   - a request that the driver says must wait (see waits), once it no longer has to;
//   - any other request once the device has room for it, and never before requests posted earlier.
//
// Binds are never held back, because the window or the region may be closed meanwhile. A bind goes
// to the device at once, and all requests held before it go with it, as they were posted.
//
// A held request has a slot in the ledger, slotHeld. It is admitted when completions are polled
// from the device: by a goroutine that polls or waits for events, or by the provider itself
// (selfPoll). The lock of the send queue guards the admission.
type admission struct {
	wrs  []ibverbs.Send // in order, from head on
	ext  []ibverbs.Ext  // of the requests that have one
	data [][]byte       // inline data of each request, nil if not inline
	sges []ibverbs.SGE  // the elements of the requests, from sge on
	head int
	sge  int
}

func (a *admission) len() int { return len(a.wrs) - a.head }

// add appends a request and its extension, if it has one. Inline data may change once the post
// returns, so they are copied.
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

// drop removes the first n requests.
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

// gather returns a copy of the memory that the elements describe.
func gather(c ibverbs.Context, sgl []ibverbs.SGE) []byte {
	n := 0
	for _, e := range sgl {
		n += int(e.Length)
	}
	data := make([]byte, n)
	c.Gather(data, sgl)
	return data
}

// Flag bits of Send.Op.
const (
	fenceBit  = uint32(SendFence) << ibverbs.FlagsShift
	inlineBit = uint32(SendInline) << ibverbs.FlagsShift
)

func opcode(w *ibverbs.Send) WROpcode { return WROpcode(w.Opcode()) }
func isRead(w *ibverbs.Send) bool     { return opcode(w) == WRRDMARead }
func isBind(w ibverbs.Send) bool      { return opcode(&w) == WRBindMW }
func isFenced(w *ibverbs.Send) bool   { return w.Op&fenceBit != 0 }
func isInline(w *ibverbs.Send) bool   { return w.Op&inlineBit != 0 }

// waits is the default for drivers whose only fault concerns fences.
func (q *ledgerQP) waits(*ibverbs.Send, int) bool { return false }

// admit passes to the device the part of the converted list that may proceed and holds the rest. It
// returns the number of requests that the device accepted or the admission holds; if the device
// fails, none are held.
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

// admissible returns how many of the requests may go to the device.
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

// unfence clears the fence of requests that have waited.
func (q *ledgerQP) unfence(wrs []ibverbs.Send) {
	if q.fences {
		for i := range wrs {
			wrs[i].Op &^= fenceBit
		}
	}
}

// hand posts requests to the device and records those it accepts.
func (q *ledgerQP) hand(wrs []ibverbs.Send, sges []ibverbs.SGE, ext []ibverbs.Ext) (int, error) {
	n, err := postResult("ibv_post_send", q.c.Send(wrs, sges, ext, nil))
	for i := range wrs {
		if i < n || err == nil || errors.Is(err, errBroken) {
			q.sends.lend(wrs[i].ID)
		}
	}
	return n, err
}

// hold holds back the converted requests from index n on.
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

// admitHeld posts the requests that no longer have to wait. The caller holds the lock of the send
// queue.
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

// admitAll posts all held requests as the program posted them. It returns false if that makes the
// QP fail.
func (q *ledgerQP) admitAll() bool {
	n := q.admission.len()
	return n == 0 || q.admitFirst(n)
}

// admitFirst posts the first n held requests. If the device refuses one, the QP fails.
func (q *ledgerQP) admitFirst(n int) bool {
	a := &q.admission
	if _, err := q.hand(a.wrs[a.head:a.head+n], a.sges[a.sge:], a.ext); err != nil {
		// Requests that the device did not accept are flushed with the rest. Nothing overtakes
		// them, and the device gets nothing twice.
		q.dropHeld()
		q.sends.poisoned, q.bad = true, true
		if errors.Is(err, errBroken) {
			err = WCWRFlushErr // the connection is gone; the connection manager reports why
		}
		go q.fail(err)
		return false
	}
	q.sends.cq.held.Add(int64(-n))
	a.drop(n)
	return true
}

// dropHeld discards the held requests.
func (q *ledgerQP) dropHeld() {
	q.sends.cq.held.Add(int64(-q.admission.len()))
	q.admission = admission{}
}
