// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// waiting is a queue of requests.
type waiting struct{ queue.Ring[held] }

// held is a copy of a request. It refers to nothing of the program's except the memory of its
// elements.
type held struct {
	wr     verbs.SendWR // without SGL
	sgl    []verbs.SGE
	inline []byte // inline data
	bind   verbs.MWBind
}

// hold appends a copy of a request.
func (w *waiting) hold(wr *verbs.SendWR) {
	h := w.Add()
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

// list returns the request as a list of one, for a QP that copies inline data during the post.
func (h *held) list(one *[1]verbs.SendWR, sgl *[1]verbs.SGE) []verbs.SendWR {
	one[0] = h.wr
	if h.wr.Bind != nil {
		one[0].Bind = &h.bind // the queue may have moved it
	}
	if h.wr.Flags&verbs.SendInline != 0 {
		one[0].SGL = nil
		if len(h.inline) > 0 {
			sgl[0] = verbs.SGE{Addr: addressOf(h.inline), Length: uint32(len(h.inline))}
			one[0].SGL = sgl[:]
		}
	}
	return one[:]
}
