// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"sync"
)

type kernelSRQ struct {
	ctx    *kernelContext
	owner  *SRQ
	c      rawSRQ
	cookie uint64

	mu    sync.Mutex // guards what follows; after that of a CQ
	flat  recvList
	slots []uint64 // tracked: the IDs of requests that the device knows by index
	free  []uint32 // tracked: slots without a request
}

// CreateSRQ makes a shared receive queue.
func (pd *kernelPD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := &kernelSRQ{ctx: pd.ctx, owner: owner}
	if err := pd.ctx.counts.srq.add(); err != nil {
		return nil, SRQAttr{}, err
	}
	s.cookie = newCookie(s)
	var has SRQAttr
	var rc int
	if s.c, has, rc = pd.c.createSRQ(s.cookie, SRQAttr{MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE}); rc != 0 {
		dropCookie(s.cookie)
		pd.ctx.counts.srq.remove()
		return nil, SRQAttr{}, callError("ibv_create_srq", rc)
	}
	attr = SRQAttr{MaxWR: max(has.MaxWR, attr.MaxWR), MaxSGE: max(has.MaxSGE, attr.MaxSGE)}
	return s, attr, nil
}

// PostRecv hands a list over in one call.
func (s *kernelSRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flat.fill(wrs, s.ctx.model.oneSGE)
	if s.ctx.model.tracked {
		for i := range s.flat.wrs {
			s.flat.wrs[i].id = idRecv | idSRQ | uint64(s.put(wrs[i].ID))
		}
	}
	res := s.c.postRecv(s.flat.wrs, s.flat.sges)
	n, err := postResult("ibv_post_srq_recv", res)
	if s.ctx.model.tracked {
		for i := range s.flat.wrs[n:] {
			s.free = append(s.free, uint32(s.flat.wrs[n+i].id))
		}
	}
	return n, err
}

// put keeps an ID and returns its index.
func (s *kernelSRQ) put(id uint64) uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.slots[i] = id
		return i
	}
	s.slots = append(s.slots, id)
	return uint32(len(s.slots) - 1)
}

// take returns the ID of a request that has ended.
func (s *kernelSRQ) take(tag uint64) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := uint32(tag)
	if int(i) >= len(s.slots) {
		return 0, false
	}
	s.free = append(s.free, i)
	return s.slots[i], true
}

// Modify changes size or limit.
func (s *kernelSRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	return callError("ibv_modify_srq", s.c.modify(SRQAttr{MaxWR: attr.MaxWR, SRQLimit: attr.SRQLimit}, mask))
}

// Query asks the kernel.
func (s *kernelSRQ) Query() (SRQAttr, error) {
	attr, rc := s.c.query()
	return attr, callError("ibv_query_srq", rc)
}

// Destroy destroys the queue.
func (s *kernelSRQ) Destroy() error {
	err := callError("ibv_destroy_srq", s.c.destroy())
	dropCookie(s.cookie)
	s.ctx.counts.srq.remove()
	return err
}

// recvList is a list of receives as C takes it.
type recvList struct {
	wrs  []flatRecv
	sges []SGE
}

// fill converts wrs. With oneSGE a receive without elements gets one of length 0.
func (l *recvList) fill(wrs []RecvWR, oneSGE bool) {
	l.wrs, l.sges = l.wrs[:0], l.sges[:0]
	for i := range wrs {
		n := len(wrs[i].SGL)
		l.sges = append(l.sges, wrs[i].SGL...)
		if n == 0 && oneSGE {
			l.sges = append(l.sges, SGE{})
			n = 1
		}
		l.wrs = append(l.wrs, flatRecv{id: wrs[i].ID, numSGE: uint32(n)})
	}
}
