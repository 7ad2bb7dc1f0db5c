// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "slices"

// sglStore retains the elements of requests by request number. It has a power of two of places, at
// least as many as requests can be outstanding, and a number reuses the place of the number that
// many before it. A nil store retains nothing.
type sglStore struct {
	most   int // most elements of a request
	counts []uint8
	sges   []SGE
}

// newSGLStore returns a store for this many requests of at most this many elements each.
func newSGLStore(requests, elements int) *sglStore {
	s := &sglStore{most: elements}
	s.grow(requests)
	return s
}

// grow enlarges the store to this many requests in total. Its contents are kept.
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
