// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// srq is a shared receive queue.
type srq struct {
	*verbs.SRQ
	recv receiver
}

//export rnic_create_srq
func rnic_create_srq(h C.uint32_t, owner unsafe.Pointer, a *C.struct_ibv_srq_attr, to *C.uint32_t) C.int {
	pd, ok := get[*verbs.PD](h)
	if !ok || a.max_wr == 0 {
		return einval
	}
	// ibv_create_srq does not set the limit either
	s, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: int(a.max_wr), MaxSGE: max(1, int(a.max_sge))})
	if err != nil {
		return errno(err)
	}
	got := s.Attr()
	a.max_wr, a.max_sge = C.uint32_t(got.MaxWR), C.uint32_t(got.MaxSGE)
	owners.put(s, owner)
	return keep(&srq{SRQ: s}, to)
}

func (s *srq) Close() error {
	if err := s.SRQ.Close(); err != nil {
		return err
	}
	owners.drop(s.SRQ)
	return nil
}

//export rnic_modify_srq
func rnic_modify_srq(h C.uint32_t, a *C.struct_ibv_srq_attr, mask C.int) C.int {
	s, ok := get[*srq](h)
	if !ok {
		return einval
	}
	return errno(s.Modify(verbs.SRQAttr{MaxWR: int(a.max_wr), SRQLimit: int(a.srq_limit)}, verbs.SRQAttrMask(mask)))
}

//export rnic_query_srq
func rnic_query_srq(h C.uint32_t, a *C.struct_ibv_srq_attr) C.int {
	s, ok := get[*srq](h)
	if !ok {
		return einval
	}
	v, err := s.Query()
	if err != nil {
		return errno(err)
	}
	a.max_wr, a.max_sge, a.srq_limit = C.uint32_t(v.MaxWR), C.uint32_t(v.MaxSGE), C.uint32_t(v.SRQLimit)
	return 0
}

//export rnic_post_srq_recv
func rnic_post_srq_recv(h C.uint32_t, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) C.int {
	s, ok := get[*srq](h)
	if !ok {
		*bad = wr
		return einval
	}
	return s.recv.post(s.SRQ, wr, bad)
}
