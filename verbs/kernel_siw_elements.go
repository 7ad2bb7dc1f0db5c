// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"slices"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

func isEmpty(s ibverbs.SGE) bool    { return s.Length == 0 }
func isNotEmpty(s ibverbs.SGE) bool { return s.Length > 0 }

// adapt changes the requests that siw would misinterpret.
func (q *siwQP) adapt(l *sendList) { siwElements{q.faults, q.short}.adapt(l) }

// siwElements rewrites the elements of requests into a form that siw handles correctly.
type siwElements struct {
	faults faultSet
	short  uint32 // as in siwQP
}

func (m siwElements) adapt(l *sendList) {
	amiss, at := false, 0
	for i := range l.wrs {
		w := &l.wrs[i]
		n := w.Elements()
		own := l.sges[at : at+n]
		at += n
		if opcode(w) == WRSendWithInv && m.faults.has(siwKeyElsewhere) {
			w.RKey = w.Imm
		}
		if isRead(w) {
			m.fence(w, own)
		}
		amiss = amiss || m.wrong(w, own)
	}
	if amiss {
		m.mend(l)
	}
}

// fence clears the fence of a Read, as the Reads of a QP execute in order without it. It sets the
// fence on a Read of 0 bytes, so that the admission holds it back.
func (m siwElements) fence(w *ibverbs.Send, own []ibverbs.SGE) {
	if m.faults.has(siwFencedRead) {
		w.Op &^= fenceBit
	}
	if m.faults.has(siwReadOfNothing) && !slices.ContainsFunc(own, isNotEmpty) {
		w.Op |= fenceBit
	}
}

// wrong reports whether siw would misinterpret the elements of a request.
func (m siwElements) wrong(w *ibverbs.Send, own []ibverbs.SGE) bool {
	switch len(own) {
	case 0:
		return m.lacking(w)
	case 1:
		return m.firstPage(w, own[0]) > 0
	}
	return m.faults.has(siwElementEmpty) && slices.ContainsFunc(own, isEmpty)
}

// lacking reports whether a request without elements must be given one.
func (m siwElements) lacking(w *ibverbs.Send) bool { return isRead(w) && m.faults.has(siwReadEmpty) }

// firstPage returns how many bytes of a request's only element must become a separate element, 0 if
// none.
func (m siwElements) firstPage(w *ibverbs.Send, s ibverbs.SGE) uint32 {
	if isRead(w) || isInline(w) {
		return 0
	}
	return tear(s.Addr, s.Length, m.short)
}

// mend gives each Read without elements one of length 0, removes empty elements from requests with
// several, and splits a single element that crosses a page. It is rarely needed.
func (m siwElements) mend(l *sendList) {
	sges := make([]ibverbs.SGE, 0, len(l.sges)+len(l.wrs))
	at := 0
	for i := range l.wrs {
		w := &l.wrs[i]
		n := w.Elements()
		own := l.sges[at : at+n]
		at += n
		before := len(sges)
		if n == 0 && m.lacking(w) {
			sges = append(sges, ibverbs.SGE{})
		}
		for _, e := range own {
			if n == 1 || !isEmpty(e) || !m.faults.has(siwElementEmpty) {
				sges = append(sges, e)
			}
		}
		if len(sges) == before+1 {
			e := &sges[before]
			if first := m.firstPage(w, *e); first > 0 {
				rest := ibverbs.SGE{Addr: e.Addr + uint64(first), Length: e.Length - first, LKey: e.LKey}
				e.Length = first
				sges = append(sges, rest)
			}
		}
		w.Op += uint32(len(sges)-before-n) << ibverbs.SGEsShift
	}
	l.sges = sges
}
