// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// ledgerSRQ is the SRQ of a device that breaks promises of libibverbs. It posts each request to the
// device under a number of its own.
type ledgerSRQ struct {
	kernelSRQ
	least int // least number of elements of a receive

	ids  []uint64 // IDs of requests, by number; guarded by mu, as are the fields below
	free []uint32 // unused numbers
	sgls *sglStore
}

// PostRecv posts a list in one call.
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

// put records a request and returns its number.
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

// srqSlot returns the number of a request from the wr_id posted to the device.
func srqSlot(tag uint64) uint64 { return uint64(uint32(tag)) }

// take returns the ID of a finished request and frees its number. The caller holds mu.
func (s *ledgerSRQ) take(tag uint64) (uint64, bool) {
	i := srqSlot(tag)
	if i >= uint64(len(s.ids)) {
		return 0, false
	}
	s.free = append(s.free, uint32(i))
	return s.ids[i], true
}
