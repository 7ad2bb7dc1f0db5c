// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import "github.com/goverbs/goverbs/verbs"

// waiting is a queue of requests. It keeps the places of those that have left it, so that it allocates nothing once it has grown.
type waiting struct {
	ring    []held
	head, n int
}

// held is a copy of a request: nothing of the program's is kept but the memory of its elements.
type held struct {
	wr     verbs.SendWR // without the SGL
	sgl    []verbs.SGE
	inline []byte // the data, if they are inline
	bind   verbs.MWBind
}

func (w *waiting) front() *held { return &w.ring[w.head] }

func (w *waiting) pop() { w.head, w.n = (w.head+1)%len(w.ring), w.n-1 }

func (w *waiting) push(wr *verbs.SendWR) {
	if w.n == len(w.ring) {
		w.grow()
	}
	h := &w.ring[(w.head+w.n)%len(w.ring)]
	w.n++
	h.wr, h.sgl, h.inline = *wr, append(h.sgl[:0], wr.SGL...), h.inline[:0]
	h.wr.SGL = h.sgl
	if wr.Bind != nil {
		h.bind = *wr.Bind
		h.wr.Bind = &h.bind
	}
	if wr.Flags&verbs.SendInline != 0 {
		for _, s := range wr.SGL {
			h.inline = appendMemory(h.inline, s.Addr, s.Length)
		}
	}
}

func (w *waiting) grow() {
	ring := make([]held, max(8, 2*len(w.ring)))
	for i := range w.n {
		h := &ring[i]
		*h = w.ring[(w.head+i)%len(w.ring)]
		if h.wr.Bind != nil {
			h.wr.Bind = &h.bind
		}
	}
	w.ring, w.head = ring, 0
}

// list is the request as a list in one, for a QP that copies inline data during the post.
func (h *held) list(one *[1]verbs.SendWR, sgl *[1]verbs.SGE) []verbs.SendWR {
	one[0] = h.wr
	if h.wr.Flags&verbs.SendInline != 0 {
		one[0].SGL = nil
		if len(h.inline) > 0 {
			sgl[0] = verbs.SGE{Addr: addressOf(h.inline), Length: uint32(len(h.inline))}
			one[0].SGL = sgl[:]
		}
	}
	return one[:]
}
