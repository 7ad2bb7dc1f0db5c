// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"slices"
)

// A gate keeps from the device what would wait in its queue. While a Read waits there for its turn, or a fenced request for
// the Reads before it, siw answers none of the peer's Reads (siw_init_rresp finds the queue busy), so two of them that both
// wait do so for good. rxe does not send a fenced request again, if that is lost, while a Read behind it is unanswered, and
// that is not answered before the request has come (rxe_wqe_is_fenced counts all Reads); a fenced Read waits for itself. The
// device gets
//   - a fenced request, without the flag, when no Read or atomic is unanswered;
//   - any request when the device has a place for it, and none before those that were posted earlier;
//   - siw: a Read when fewer Reads are unanswered than the agreed depth;
//   - siw: a Read of 0 octets, which it answers with others if it is busy, when no other is unanswered.
//
// Binds do not wait, because the window and the region may be closed meanwhile: with one goes what is before it, as it was posted.
//
// What waits has a slot in the account, slotHeld, and is let through as completions are taken from the device: by who polls or
// waits for events, and by the CQ's watch. The lock of the send queue guards a gate.
type gate struct {
	wrs  []flatSend // in order, from head on
	ext  []flatExt  // of each that has one
	data [][]byte   // of each that is inline, nil for the others
	sges []SGE      // theirs, from sge on
	head int
	sge  int
}

func (g *gate) len() int { return len(g.wrs) - g.head }

// add appends a request, whose extension is in ext if it has one. Inline data may change when the post returns, so they are
// copied.
func (g *gate) add(w flatSend, sgl []SGE, ext []flatExt) {
	var x flatExt
	if w.ext != 0 {
		x = ext[w.ext-1]
		w.ext = uint32(len(g.ext) + 1)
	}
	g.ext = append(g.ext, x)
	var data []byte
	if isInline(&w) && len(sgl) > 0 {
		data = gather(sgl)
		w.op -= uint32(len(sgl)-1) << sgesShift
		sgl = []SGE{{Addr: uint64(addressOf(data)), Length: uint32(len(data))}}
	}
	g.wrs, g.data, g.sges = append(g.wrs, w), append(g.data, data), append(g.sges, sgl...)
}

// drop takes the first n requests out.
func (g *gate) drop(n int) {
	for i := range n {
		g.sge += elements(&g.wrs[g.head+i])
		g.data[g.head+i] = nil
	}
	if g.head += n; 2*g.head >= len(g.wrs) {
		g.wrs = g.wrs[:copy(g.wrs, g.wrs[g.head:])]
		g.ext = g.ext[:copy(g.ext, g.ext[g.head:])]
		for i := range g.wrs {
			if w := &g.wrs[i]; w.ext != 0 {
				w.ext -= uint32(g.head)
			}
		}
		g.data = g.data[:copy(g.data, g.data[g.head:])]
		g.sges = g.sges[:copy(g.sges, g.sges[g.sge:])]
		g.head, g.sge = 0, 0
	}
}

// pass gives the device what it may have of the list that has been converted, and holds the rest. It returns how many
// requests the device or the gate has taken; if the device fails, the gate takes none.
func (q *kernelQP) pass() (int, error) {
	s := &q.send
	n := 0
	if s.gate.len() == 0 {
		n = q.admitted(s.wrs)
	}
	if slices.ContainsFunc(s.wrs[n:], isBind) {
		if !q.open() {
			return len(s.wrs), nil // to be flushed with the rest
		}
		return q.hand(s.wrs, s.sges, s.ext)
	}
	if n > 0 {
		q.unfence(s.wrs[:n])
		taken, err := q.hand(s.wrs[:n], s.sges, s.ext)
		if err != nil {
			return taken, err
		}
	}
	if n < len(s.wrs) {
		q.hold(n)
	}
	return len(s.wrs), nil
}

// admitted is how many of the requests the device may have now.
func (q *kernelQP) admitted(wrs []flatSend) int {
	if !q.ctx.model.gated {
		return len(wrs)
	}
	t, ord := &q.send.track, int(q.ord.Load())
	if !q.ctx.model.turns {
		ord = unknownORD
	}
	room, reads := q.places-t.lent, t.reads
	for i := range wrs {
		switch w := &wrs[i]; {
		case i == room:
			return i
		case isFenced(w) && reads > 0, isRead(w) && ord >= 0 && reads >= ord:
			return i
		case needsORD(opcode(w)):
			reads++
		}
	}
	return len(wrs)
}

// unfence takes the flag from requests that have waited.
func (q *kernelQP) unfence(wrs []flatSend) {
	if q.ctx.model.gated {
		for i := range wrs {
			wrs[i].op &^= fenceBit
		}
	}
}

// hand gives requests to the device and notes those that it takes.
func (q *kernelQP) hand(wrs []flatSend, sges []SGE, ext []flatExt) (int, error) {
	s := &q.send
	n, err := q.postResult("ibv_post_send", q.c.postSend(wrs, sges, ext, nil))
	for i := range wrs {
		if i < n || err == nil || errors.Is(err, errBroken) {
			s.track.lend(wrs[i].id)
		}
	}
	return n, err
}

// hold keeps the converted requests from the nth on.
func (q *kernelQP) hold(n int) {
	s := &q.send
	at := 0
	for i, w := range s.wrs {
		count := elements(&w)
		if i >= n {
			s.gate.add(w, s.sges[at:at+count], s.ext)
		}
		at += count
	}
	q.sendCQ.held.Add(int64(len(s.wrs) - n))
}

// gather copies what elements name.
func gather(sgl []SGE) []byte {
	n := 0
	for _, e := range sgl {
		n += int(e.Length)
	}
	data := make([]byte, n)
	copyElements(data, sgl)
	return data
}

// release lets through what need not wait any more. The caller holds the lock of the send queue.
func (q *kernelQP) release() {
	g := &q.send.gate
	if st := q.qpState(); g.len() == 0 || st < QPStateRTS || st == QPStateErr {
		return
	}
	if n := q.admitted(g.wrs[g.head:]); n > 0 {
		q.unfence(g.wrs[g.head : g.head+n])
		q.through(n)
	}
}

// open lets everything through, as it was posted. It is false if the QP fails by that.
func (q *kernelQP) open() bool {
	n := q.send.gate.len()
	return n == 0 || q.through(n)
}

// through gives the device the first n requests that wait. If that fails, so does the QP.
func (q *kernelQP) through(n int) bool {
	g := &q.send.gate
	if _, err := q.hand(g.wrs[g.head:g.head+n], g.sges[g.sge:], g.ext); err != nil {
		// What the device has not got is flushed with the rest. Nothing overtakes it, and the device gets nothing twice.
		q.shut()
		q.send.track.poisoned, q.send.bad = true, true
		if errors.Is(err, errBroken) {
			err = WCWRFlushErr // the connection has ended: who knows how tells more
		}
		go q.fail(err)
		return false
	}
	q.sendCQ.held.Add(int64(-n))
	g.drop(n)
	return true
}

// shut forgets what waits.
func (q *kernelQP) shut() {
	q.sendCQ.held.Add(int64(-q.send.gate.len()))
	q.send.gate = gate{}
}
