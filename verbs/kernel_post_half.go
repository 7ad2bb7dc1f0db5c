// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// siw copies what a short message takes from one element into the buffer of its header (siw_try_1seg, MAX_HDR_INLINE). If the
// element crosses a boundary between pages, as many octets come from the first page as the second one has, and the other way
// round, so most of what follows is wrong; only within the call that posts the request it is right. Sends and Writes are
// given two elements, which siw takes another way (see mend). A Read is answered by the peer, from one element always: here it
// becomes two.

// pageSize is the smallest of all, for the peer's is not known.
const pageSize = 4096

// tear returns how many of n octets at addr come before a boundary between pages, 0 if they do not cross one or are more
// than short.
func tear(addr uint64, n, short uint32) uint32 {
	if first := pageSize - uint32(addr%pageSize); first < n && n <= short {
		return first
	}
	return 0
}

// halves says which requests of a list are the first halves of those that follow. nil = none.
type halves []bool

func (h halves) has(i int) bool { return i >= 0 && i < len(h) && h[i] }

// among is how many of the first n requests are halves.
func (h halves) among(n int) int {
	sum := 0
	for i := range min(n, len(h)) {
		if h[i] {
			sum++
		}
	}
	return sum
}

// halve makes two of each Read that a peer's siw would answer wrongly.
func halve(wrs []SendWR, short uint32) ([]SendWR, halves) {
	var list []SendWR
	var half halves
	for i := range wrs {
		w := &wrs[i]
		first := readTear(w, short)
		if first == 0 {
			if list != nil {
				list, half = append(list, *w), append(half, false)
			}
			continue
		}
		if list == nil {
			list, half = append(list, wrs[:i]...), make(halves, i, 2*len(wrs))
		}
		a, b, e := *w, *w, w.SGL[0]
		a.SGL = []SGE{{e.Addr, first, e.LKey}}
		b.SGL = []SGE{{e.Addr + uint64(first), e.Length - first, e.LKey}}
		b.RemoteAddr += uint64(first)
		list, half = append(list, a, b), append(half, true, false)
	}
	if list == nil {
		return wrs, nil
	}
	return list, half
}

func readTear(w *SendWR, short uint32) uint32 {
	if w.Opcode != WRRDMARead || len(w.SGL) != 1 {
		return 0
	}
	return tear(w.RemoteAddr, w.SGL[0].Length, short)
}
