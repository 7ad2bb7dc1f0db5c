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

//export rnic_alloc_pd
func rnic_alloc_pd(context C.uint32_t, to *C.uint32_t) C.int {
	c, ok := get[*ibv_context](context)
	if !ok {
		return einval
	}
	pd, err := c.AllocPD()
	if err != nil {
		return errno(err)
	}
	return keep(pd, to)
}

// access converts the access rights of a region. It drops hints: huge pages, and the flags that a
// device may ignore (IBV_ACCESS_OPTIONAL_RANGE).
func access(a C.uint32_t) verbs.AccessFlags {
	return verbs.AccessFlags(a) &^ (C.IBV_ACCESS_OPTIONAL_RANGE | verbs.AccessHugeTLB)
}

// memory returns the program's memory as a slice.
func memory(addr unsafe.Pointer, length C.size_t) ([]byte, bool) {
	if int(length) < 0 || uintptr(addr)+uintptr(length) < uintptr(addr) || (addr == nil && length > 0) {
		return nil, false
	}
	return unsafe.Slice((*byte)(addr), int(length)), true
}

//export rnic_reg_mr
func rnic_reg_mr(h C.uint32_t, addr unsafe.Pointer, length C.size_t, iova C.uint64_t, flags C.uint32_t, to, lkey,
	rkey *C.uint32_t) C.int {
	pd, ok := get[*verbs.PD](h)
	buf, fits := memory(addr, length)
	if !ok || !fits {
		return einval
	}
	mr, err := pd.RegMRIova(buf, uint64(iova), access(flags))
	if err != nil {
		return errno(err)
	}
	*lkey, *rkey = C.uint32_t(mr.LKey()), C.uint32_t(mr.RKey())
	return keep(mr, to)
}

//export rnic_rereg_mr
func rnic_rereg_mr(h C.uint32_t, flags C.int, pdh C.uint32_t, addr unsafe.Pointer, length C.size_t, rights C.uint32_t,
	lkey, rkey *C.uint32_t) C.int {
	mr, ok := get[*verbs.MR](h)
	pd, _ := get[*verbs.PD](pdh)
	buf, fits := memory(addr, length)
	if !ok || !fits {
		return einval
	}
	if err := mr.Rereg(verbs.ReregFlags(flags), pd, buf, access(rights)); err != nil {
		return errno(err)
	}
	*lkey, *rkey = C.uint32_t(mr.LKey()), C.uint32_t(mr.RKey())
	return 0
}

// rnic_revoke closes a region whose memory is about to be unmapped. Its handle remains valid until
// the program deregisters it.
//
//export rnic_revoke
func rnic_revoke(h C.uint32_t) C.int {
	mr, ok := get[*verbs.MR](h)
	if !ok {
		return einval
	}
	say("the memory of region %v has been unmapped: it ends", mr)
	return errno(mr.Close())
}

//export rnic_alloc_mw
func rnic_alloc_mw(h C.uint32_t, kind C.int, to, rkey *C.uint32_t) C.int {
	pd, ok := get[*verbs.PD](h)
	if !ok {
		return einval
	}
	w, err := pd.AllocMW(verbs.MWType(kind))
	if err != nil {
		return errno(err)
	}
	*rkey = C.uint32_t(w.RKey())
	return keep(w, to)
}

//export rnic_bind_mw
func rnic_bind_mw(qph, mwh, mrh C.uint32_t, b *C.struct_ibv_mw_bind, rkey *C.uint32_t) C.int {
	q, ok := get[*qp](qph)
	w, isWindow := get[*verbs.MW](mwh)
	mr, _ := get[*verbs.MR](mrh)
	if !ok || !isWindow {
		return einval
	}
	err := q.BindMW(uint64(b.wr_id), verbs.SendFlags(b.send_flags),
		verbs.MWBind{MW: w, MR: mr, Addr: uint64(b.bind_info.addr), Length: uint64(b.bind_info.length),
			Access: verbs.AccessFlags(b.bind_info.mw_access_flags)})
	if err != nil {
		return errno(err)
	}
	*rkey = C.uint32_t(w.RKey())
	return 0
}
