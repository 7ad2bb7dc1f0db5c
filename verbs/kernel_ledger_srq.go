// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// ledgerSRQ is the SRQ of a device that does not keep libibverbs' promises. The device knows its
// requests by a number.
type ledgerSRQ struct {
	kernelSRQ
	least int // elements that a receive must have

	ids  []uint64 // of requests, by number; guarded by mu, as what follows
	free []uint32 // numbers without a request
	sgls *sglStore
}

// PostRecv hands a list over in one call.
func (s *ledgerSRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flat.fill(wrs, s.least)
	for i := range s.flat.wrs {
		s.flat.wrs[i].ID = idRecv | idSRQ | s.put(&wrs[i])
	}
	n, err := s.hand()
	for i := range s.flat.wrs[n:] {
		s.free = append(s.free, uint32(s.flat.wrs[n+i].ID))
	}
	return n, err
}

// put keeps a request and returns its number.
func (s *ledgerSRQ) put(w *RecvWR) uint64 {
	var i uint32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
		s.ids[i] = w.ID
	} else {
		i = uint32(len(s.ids))
		s.ids = append(s.ids, w.ID)
		s.sgls.grow(len(s.ids))
	}
	s.sgls.put(uint64(i), w.SGL)
	return uint64(i)
}

// srqSlot is the number of a request in the wr_id that the device got.
func srqSlot(tag uint64) uint64 { return uint64(uint32(tag)) }

// take returns the ID of a request that has ended. The caller holds mu.
func (s *ledgerSRQ) take(tag uint64) (uint64, bool) {
	i := srqSlot(tag)
	if i >= uint64(len(s.ids)) {
		return 0, false
	}
	s.free = append(s.free, uint32(i))
	return s.ids[i], true
}
