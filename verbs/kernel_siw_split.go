// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// The fault siwPageTorn: siw copies the payload of a short message with one element into the buffer
// of its header. If the element crosses a page boundary, siw takes as many bytes from the first
// page as belong to the second, and vice versa, so most of the payload is wrong unless siw sends it
// within the posting call. Sends and Writes are therefore posted with two elements, which siw sends
// another way (see mend). The response to a Read is sent by the peer, always from one element, so
// the Read is split into two here.

// pageSize is the smallest page size of any machine, because the peer's is unknown.
const pageSize = 4096

// tear returns how many of n bytes at addr precede a page boundary. It returns 0 if they do not
// cross one or if n is larger than short.
func tear(addr uint64, n, short uint32) uint32 {
	if first := pageSize - uint32(addr%pageSize); first < n && n <= short {
		return first
	}
	return 0
}

// split splits each Read that a peer's siw would answer wrongly.
func (q *siwQP) split(wrs []SendWR) ([]SendWR, splitReads) { return split(wrs, q.short) }

func split(wrs []SendWR, short uint32) ([]SendWR, splitReads) {
	var list []SendWR
	var firsts splitReads
	for i := range wrs {
		w := &wrs[i]
		first := readTear(w, short)
		if first == 0 {
			if list != nil {
				list, firsts = append(list, *w), append(firsts, false)
			}
			continue
		}
		if list == nil {
			list, firsts = append(list, wrs[:i]...), make(splitReads, i, 2*len(wrs))
		}
		a, b, e := *w, *w, w.SGL[0]
		a.SGL = []SGE{{e.Addr, first, e.LKey}}
		b.SGL = []SGE{{e.Addr + uint64(first), e.Length - first, e.LKey}}
		b.RemoteAddr += uint64(first)
		list, firsts = append(list, a, b), append(firsts, true, false)
	}
	if list == nil {
		return wrs, nil
	}
	return list, firsts
}

func readTear(w *SendWR, short uint32) uint32 {
	if w.Opcode != WRRDMARead || len(w.SGL) != 1 {
		return 0
	}
	return tear(w.RemoteAddr, w.SGL[0].Length, short)
}
