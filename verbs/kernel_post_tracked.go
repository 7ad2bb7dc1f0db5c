// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"slices"
)

// postTracked is PostSend with an account. It unlocks the queue.
func (q *kernelQP) postTracked(wrs []SendWR) (int, error) {
	s := &q.send
	if q.qpState() == QPStateErr || s.track.poisoned {
		s.mu.Unlock()
		return q.postHeld(wrs)
	}
	defer s.mu.Unlock()
	var full error
	if room := max(q.cap.MaxSendWR-s.track.requests(), 0); len(wrs) > room {
		if wrs, full = wrs[:room], ErrQueueFull; room == 0 {
			return 0, full
		}
	}
	good := len(wrs)
	m := &q.ctx.model
	if q.ord.Load() == 0 {
		// The device's queue would stop for good.
		for i := range wrs {
			if needsORD(wrs[i].Opcode) {
				good = i
				break
			}
		}
	}
	if good > 0 {
		list, half := halve(wrs[:good], m.short)
		s.fill(list)
		s.adapt(m)
		for i := range s.wrs {
			s.wrs[i].id = q.enter(&list[i], half.has(i))
			s.wrs[i].op |= uint32(SendSignaled) << flagsShift
		}
		if n, err := q.pass(); err != nil {
			if !errors.Is(err, errBroken) && !half.has(n-1) {
				s.track.withdraw(len(list) - n)
				return n - half.among(n), err
			}
			// They are in the device's queue and may be executed or not. Those that are not are flushed.
			go q.fail(err)
		}
		q.lookAfterSends()
	}
	if good < len(wrs) {
		s.track.poisoned = true
		s.mu.Unlock()
		n, err := q.postHeld(wrs[good:])
		s.mu.Lock()
		if err != nil {
			return good + n, err
		}
	}
	return len(wrs), full
}

// relieveSends takes completions from the device. It unlocks the queue meanwhile.
func (q *kernelQP) relieveSends() {
	q.send.mu.Unlock()
	q.sendCQ.relieve()
	q.send.mu.Lock()
}

// lookAfterSends sees to it that the CQ has room for what has just been posted. It may unlock the queue meanwhile.
func (q *kernelQP) lookAfterSends() {
	if q.sendCQ.hidden.Load() > hiddenSlack/2 {
		q.relieveSends()
	}
	q.sendCQ.watch(q.send.track.lent + q.send.gate.len())
}

// enter enters a request into the account, or the first half of one. The device gets it later.
func (q *kernelQP) enter(w *SendWR, half bool) uint64 {
	return q.send.track.push(slot{wc: WC{ID: w.ID}, read: needsORD(w.Opcode), half: half,
		visible: !half && (q.sigAll || w.Flags&SendSignaled != 0), reported: true})
}

// adapt changes what the device would misunderstand.
func (s *sendQueue) adapt(m *model) {
	if !m.oneSGE && !m.turns {
		return
	}
	amiss, at := false, 0
	for i := range s.wrs {
		w := &s.wrs[i]
		n := elements(w)
		own := s.sges[at : at+n]
		at += n
		if m.turns && isRead(w) {
			// Reads of one QP are in order without a fence, which the gate takes for that of an empty one.
			w.op &^= fenceBit
			if !slices.ContainsFunc(own, isNotEmpty) {
				w.op |= fenceBit
			}
		}
		amiss = amiss || m.oneSGE && elementsAmiss(w, own, m.short)
	}
	if amiss {
		s.mend(m)
	}
}

func isEmpty(s SGE) bool    { return s.Length == 0 }
func isNotEmpty(s SGE) bool { return s.Length > 0 }

// elementsAmiss reports whether siw would misunderstand the elements of a request: a Read without any, one that crosses a
// page (see tear), or several with one of length 0, for which it uses a region that it has not looked up (siw_tx_hdt).
func elementsAmiss(w *flatSend, sgl []SGE, short uint32) bool {
	switch len(sgl) {
	case 0:
		return isRead(w)
	case 1:
		return firstPage(w, sgl[0], short) > 0
	}
	return slices.ContainsFunc(sgl, isEmpty)
}

// firstPage is how many octets of a request's only element are to become an element of their own.
func firstPage(w *flatSend, s SGE, short uint32) uint32 {
	if isRead(w) || isInline(w) {
		return 0
	}
	return tear(s.Addr, s.Length, short)
}

// mend gives each Read without elements one of length 0, takes those of length 0 out of several, and makes two of a single one
// that crosses a page. That is rare.
func (s *sendQueue) mend(m *model) {
	sges := make([]SGE, 0, len(s.sges)+len(s.wrs))
	at := 0
	for i := range s.wrs {
		w := &s.wrs[i]
		n := elements(w)
		own := s.sges[at : at+n]
		at += n
		before := len(sges)
		if n == 0 && isRead(w) {
			sges = append(sges, SGE{})
		}
		for _, e := range own {
			if n == 1 || !isEmpty(e) {
				sges = append(sges, e)
			}
		}
		if len(sges) == before+1 {
			e := &sges[before]
			if first := firstPage(w, *e, m.short); first > 0 {
				rest := SGE{e.Addr + uint64(first), e.Length - first, e.LKey}
				e.Length = first
				sges = append(sges, rest)
			}
		}
		w.op += uint32(len(sges)-before-n) << sgesShift
	}
	s.sges = sges
}

// postHeld takes requests that the device does not get: of a QP in the error state, to be flushed; or, in a queue that is
// poisoned, first the request that will fail.
func (q *kernelQP) postHeld(wrs []SendWR) (int, error) {
	cq, s := q.sendCQ, &q.send
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// What was before may have ended. A failure of the library's is for the next Poll.
	_ = cq.pump(cq.soft.len() + pumpBatch)
	s.mu.Lock()
	defer s.mu.Unlock()
	var full error
	if room := max(q.cap.MaxSendWR-s.track.requests(), 0); len(wrs) > room && !s.flushed {
		wrs, full = wrs[:room], ErrQueueFull
	}
	for i := range wrs {
		w := &wrs[i]
		seq := s.track.add(w.ID, slotHeld, true, false)
		if needsORD(w.Opcode) && s.track.poisoned && !s.bad && q.qpState() != QPStateErr {
			s.bad = true
			s.track.fail(seq, WCLocQPOpErr, q.num)
		}
	}
	if s.flushed {
		s.track.flush(q.num)
	}
	cq.advance(q, &s.track, false)
	cq.ring()
	return len(wrs), full
}

// recvHeld takes receives of a QP in the error state, to be flushed.
func (q *kernelQP) recvHeld(wrs []RecvWR) (int, error) {
	cq, r := q.recvCQ, &q.recv
	cq.mu.Lock()
	defer cq.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	var full error
	if room := max(q.cap.MaxRecvWR-r.track.requests(), 0); len(wrs) > room && !r.flushed {
		wrs, full = wrs[:room], ErrQueueFull
	}
	for i := range wrs {
		r.track.add(wrs[i].ID, slotHeld, true, false)
	}
	if r.flushed {
		r.track.flush(q.num)
	}
	cq.advance(q, &r.track, true)
	cq.ring()
	return len(wrs), full
}
