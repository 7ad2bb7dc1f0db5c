// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// The fault siwPageTorn: siw copies what a short message takes from one element into the buffer of
// its header. If the element crosses a boundary between pages, as many bytes come from the first
// page as the second one has, and the other way round, so most of what follows is wrong; only
// within the call that posts the request it is right. Sends and Writes are given two elements,
// which siw takes another way (see mend). A Read is answered by the peer, from one element always:
// here it becomes two.

// pageSize is the smallest of all, for the peer's is not known.
const pageSize = 4096

// tear returns how many of n bytes at addr come before a boundary between pages, 0 if they do not
// cross one or are more than short.
func tear(addr uint64, n, short uint32) uint32 {
	if first := pageSize - uint32(addr%pageSize); first < n && n <= short {
		return first
	}
	return 0
}

// split makes two of each Read that a peer's siw would answer wrongly.
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
