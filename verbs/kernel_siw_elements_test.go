// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAdaptElements: what the kernel's siw gets has no elements of length 0 among others, and no
// Read without an element.
func TestAdaptElements(t *testing.T) {
	a, b, none := SGE{Addr: 1, Length: 2, LKey: 3}, SGE{Addr: 4, Length: 5, LKey: 6}, SGE{Addr: 7, LKey: 8}
	list := []SendWR{
		{Opcode: WRSend, SGL: []SGE{none, a, none, b, none}},
		{Opcode: WRRDMARead},
		{Opcode: WRRDMAWrite, SGL: []SGE{a, b}},
		{Opcode: WRSend, SGL: []SGE{none, none}},
		{Opcode: WRRDMARead, SGL: []SGE{none}},
		{Opcode: WRSend},
		{Opcode: WRRDMARead, SGL: []SGE{b}},
	}
	counts := func(s *sendList) (n []int) {
		for i := range s.wrs {
			n = append(n, s.wrs[i].Elements())
		}
		return n
	}
	var s sendList
	s.fill(list)
	siwElements{faults: siwFaults}.adapt(&s)
	require.Equal(t, []int{2, 1, 2, 0, 1, 0, 1}, counts(&s))
	require.Equal(t, flatSGEs([]SGE{a, b, {}, a, b, none, b}), s.sges)
	for i := range list {
		require.EqualValues(t, list[i].Opcode, s.wrs[i].Opcode())
	}

	// One that has repaired this gets what was posted.
	s.fill(list)
	siwElements{faults: siwFaults.without(siwReadEmpty, siwElementEmpty)}.adapt(&s)
	require.Equal(t, []int{5, 0, 2, 2, 1, 0, 1}, counts(&s))
	require.Len(t, s.sges, 11)
}
