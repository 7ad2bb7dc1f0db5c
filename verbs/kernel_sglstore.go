// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "slices"

// sglStore keeps the elements of requests by their numbers. A number replaces the one that is a power of two before it: so many
// are under way at most. A store that is nil keeps nothing.
type sglStore struct {
	most   int // elements of a request
	counts []uint8
	sges   []SGE
}

// newSGLStore makes a store for so many requests of at most so many elements.
func newSGLStore(requests, elements int) *sglStore {
	s := &sglStore{most: elements}
	s.grow(requests)
	return s
}

// grow makes room for so many requests. Those with numbers up to there stay.
func (s *sglStore) grow(requests int) {
	if s == nil || requests <= len(s.counts) {
		return
	}
	n := max(16, len(s.counts))
	for n < requests {
		n *= 2
	}
	s.counts = slices.Grow(s.counts, n-len(s.counts))[:n]
	s.sges = slices.Grow(s.sges, n*s.most-len(s.sges))[:n*s.most]
}

func (s *sglStore) at(number uint64) int { return int(number & uint64(len(s.counts)-1)) }

func (s *sglStore) put(number uint64, sgl []SGE) {
	if s == nil {
		return
	}
	i := s.at(number)
	s.counts[i] = uint8(copy(s.sges[i*s.most:(i+1)*s.most], sgl))
}

func (s *sglStore) get(number uint64) []SGE {
	if s == nil {
		return nil
	}
	i := s.at(number)
	return s.sges[i*s.most:][:s.counts[i]]
}
