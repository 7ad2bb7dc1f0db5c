// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSGLStore: as many requests as the store is for keep their elements, whatever number the first
// one has and however often the store has grown.
func TestSGLStore(t *testing.T) {
	sgl := func(number uint64) []SGE {
		return []SGE{{Addr: number, Length: 1}, {Addr: number, Length: 2}, {Addr: number, Length: 3}}[:number%4]
	}
	holds := func(s *sglStore, first, n uint64) {
		for number := first; number < first+n; number++ {
			require.Equal(t, sgl(number), append([]SGE{}, s.get(number)...), number)
		}
	}
	for _, most := range []int{1, 16, 17, 100} {
		s := newSGLStore(most, 3)
		for number := range uint64(1000) {
			s.put(number, sgl(number))
			n := min(number+1, uint64(most))
			holds(s, number+1-n, n)
		}
	}
	s := newSGLStore(1, 3)
	for number := range uint64(100) {
		s.grow(int(number) + 1)
		s.put(number, sgl(number))
		holds(s, 0, number+1)
	}
	var none *sglStore
	none.grow(5)
	none.put(1, sgl(1))
	require.Empty(t, none.get(1))
}
