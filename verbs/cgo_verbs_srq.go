// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #cgo noescape gv_post_srq_recv
// #include "cgo_verbs.h"
import "C"

import (
	"sync"
	"unsafe"
)

type cgoSRQ struct {
	ctx    *cgoContext
	owner  *SRQ
	c      *C.struct_ibv_srq
	cookie uint64

	mu    sync.Mutex // guards what follows; after that of a CQ
	flat  recvList
	slots []uint64 // tracked: the IDs of requests that the device knows by index
	free  []uint32 // tracked: slots without a request
}

// CreateSRQ makes a shared receive queue.
func (pd *cgoPD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := &cgoSRQ{ctx: pd.ctx, owner: owner}
	if err := pd.ctx.counts.srq.add(); err != nil {
		return nil, SRQAttr{}, err
	}
	s.cookie = newCookie(s)
	ca := C.struct_ibv_srq_attr{max_wr: C.uint32_t(attr.MaxWR), max_sge: C.uint32_t(attr.MaxSGE)}
	if err := callError("ibv_create_srq", C.gv_create_srq(pd.c, C.uint64_t(s.cookie), &ca, &s.c)); err != nil {
		dropCookie(s.cookie)
		pd.ctx.counts.srq.remove()
		return nil, SRQAttr{}, err
	}
	attr = SRQAttr{MaxWR: max(int(ca.max_wr), attr.MaxWR), MaxSGE: max(int(ca.max_sge), attr.MaxSGE)}
	return s, attr, nil
}

// PostRecv hands a list over in one call.
func (s *cgoSRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flat.fill(wrs, s.ctx.model.oneSGE)
	if s.ctx.model.tracked {
		for i := range s.flat.wrs {
			s.flat.wrs[i].id = C.uint64_t(idRecv | idSRQ | uint64(s.put(wrs[i].ID)))
		}
	}
	res := uint64(C.gv_post_srq_recv(C.uintptr_t(uintptr(unsafe.Pointer(s.c))), &s.flat.wrs[0], s.flat.sgePointer(), C.int(len(wrs))))
	n, err := postResult("ibv_post_srq_recv", res)
	if s.ctx.model.tracked {
		for i := range s.flat.wrs[n:] {
			s.free = append(s.free, uint32(s.flat.wrs[n+i].id))
		}
	}
	return n, err
}

// put keeps an ID and returns its index.
func (s *cgoSRQ) put(id uint64) uint32 {
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
func (s *cgoSRQ) take(tag uint64) (uint64, bool) {
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
func (s *cgoSRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	ca := C.struct_ibv_srq_attr{max_wr: C.uint32_t(attr.MaxWR), srq_limit: C.uint32_t(attr.SRQLimit)}
	return callError("ibv_modify_srq", C.gv_result(C.ibv_modify_srq(s.c, &ca, C.int(mask)))) // 0 or an errno
}

// Query asks the kernel.
func (s *cgoSRQ) Query() (SRQAttr, error) {
	var ca C.struct_ibv_srq_attr
	err := callError("ibv_query_srq", C.gv_result(C.ibv_query_srq(s.c, &ca))) // 0 or an errno
	return SRQAttr{MaxWR: int(ca.max_wr), MaxSGE: int(ca.max_sge), SRQLimit: int(ca.srq_limit)}, err
}

// Destroy destroys the queue.
func (s *cgoSRQ) Destroy() error {
	err := callError("ibv_destroy_srq", C.gv_result(C.ibv_destroy_srq(s.c))) // 0 or an errno
	dropCookie(s.cookie)
	s.ctx.counts.srq.remove()
	return err
}

// recvList is a list of receives as C takes it.
type recvList struct {
	wrs  []C.struct_gv_recv
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
		l.wrs = append(l.wrs, C.struct_gv_recv{id: C.uint64_t(wrs[i].ID), num_sge: C.uint32_t(n)})
	}
}

func (l *recvList) sgePointer() *C.struct_ibv_sge {
	return (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(l.sges)))
}
