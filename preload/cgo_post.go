// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// A C list of requests is converted to Go lists of at most chunk requests, whose memory is reused.
const chunk = 16

// nextSend returns the n-th request after wr.
func nextSend(wr *C.struct_ibv_send_wr, n int) *C.struct_ibv_send_wr {
	for range n {
		wr = wr.next
	}
	return wr
}

func nextRecv(wr *C.struct_ibv_recv_wr, n int) *C.struct_ibv_recv_wr {
	for range n {
		wr = wr.next
	}
	return wr
}

// elements appends the elements of a request to an arena, and returns the arena and the appended
// elements. The handle checks their number.
func elements(arena []verbs.SGE, p *C.struct_ibv_sge, n C.int) ([]verbs.SGE, []verbs.SGE) {
	from := len(arena)
	for _, s := range unsafe.Slice(p, max(0, int(n))) {
		arena = append(arena, verbs.SGE{Addr: uint64(s.addr), Length: uint32(s.length), LKey: uint32(s.lkey)})
	}
	return arena, arena[from:len(arena):len(arena)]
}

// sender holds the memory for converting lists of sends.
type sender struct {
	mu   sync.Mutex // guards all fields
	wrs  [chunk]verbs.SendWR
	sges []verbs.SGE
	bind [chunk]verbs.MWBind

	inline *verbs.MR // nil until the first inline request
}

//export rnic_post_send
func rnic_post_send(h C.uint32_t, wr *C.struct_ibv_send_wr, bad **C.struct_ibv_send_wr) C.int {
	q, ok := get[*qp](h)
	if !ok {
		*bad = wr
		return einval
	}
	s := &q.send
	s.mu.Lock()
	defer s.mu.Unlock()
	for wr != nil {
		n, next := s.take(wr)
		if n == 0 {
			*bad = wr
			return einval
		}
		if err := s.copyInline(q.QP, n); err != nil {
			*bad = wr
			return errno(err)
		}
		if done, err := q.PostSend(s.wrs[:n]); err != nil {
			*bad = nextSend(wr, done)
			return errno(err)
		}
		wr = next
	}
	return 0
}

// take converts the start of a list, up to a request that cannot be converted. It returns how many
// were, and the rest of the list.
func (s *sender) take(wr *C.struct_ibv_send_wr) (n int, rest *C.struct_ibv_send_wr) {
	s.sges = s.sges[:0]
	for ; wr != nil && n < chunk; wr = wr.next {
		if wr.num_sge < 0 || (wr.num_sge > 0 && wr.sg_list == nil) || !s.request(n, wr) {
			break
		}
		n++
	}
	return n, wr
}

func (s *sender) request(i int, wr *C.struct_ibv_send_wr) bool {
	to := &s.wrs[i]
	*to = verbs.SendWR{ID: uint64(wr.wr_id), Opcode: verbs.WROpcode(wr.opcode), Flags: verbs.SendFlags(wr.send_flags)}
	s.sges, to.SGL = elements(s.sges, wr.sg_list, wr.num_sge)
	word := *(*uint32)(unsafe.Pointer(&wr.anon0)) // imm_data or invalidate_rkey
	rdma := (*struct {
		addr uint64
		rkey uint32
	})(unsafe.Pointer(&wr.wr))
	atomic := (*struct {
		addr, compareAdd, swap uint64
		rkey                   uint32
	})(unsafe.Pointer(&wr.wr))
	switch to.Opcode {
	case verbs.WRSend:
	case verbs.WRSendWithImm:
		to.Imm = network(word)
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		to.InvalidateRKey = word
	case verbs.WRRDMAWriteWithImm:
		to.Imm = network(word)
		fallthrough
	case verbs.WRRDMAWrite, verbs.WRRDMARead:
		to.RemoteAddr, to.RKey = rdma.addr, rdma.rkey
	case verbs.WRAtomicCmpAndSwp:
		to.RemoteAddr, to.RKey, to.Compare, to.Swap = atomic.addr, atomic.rkey, atomic.compareAdd, atomic.swap
	case verbs.WRAtomicFetchAndAdd:
		to.RemoteAddr, to.RKey, to.Add = atomic.addr, atomic.rkey, atomic.compareAdd
	case verbs.WRBindMW:
		return s.window(i, wr)
	default:
		return false
	}
	return true
}

// window converts a request that binds a type 2 window. The handles are stored in struct ibv_mw and
// struct ibv_mr.
func (s *sender) window(i int, wr *C.struct_ibv_send_wr) bool {
	b := (*struct {
		mw     *C.struct_ibv_mw
		rkey   uint32
		mr     *C.struct_ibv_mr
		addr   uint64
		length uint64
		access uint32
	})(unsafe.Pointer(&wr.anon1))
	if b.mw == nil {
		return false
	}
	w, ok := get[*verbs.MW](b.mw.handle)
	if !ok {
		return false
	}
	var mr *verbs.MR
	if b.mr != nil {
		if mr, ok = get[*verbs.MR](b.mr.handle); !ok {
			return false
		}
	}
	s.bind[i] = verbs.MWBind{MW: w, MR: mr, Addr: b.addr, Length: b.length, Access: verbs.AccessFlags(b.access)}
	s.wrs[i].RKey, s.wrs[i].Bind = b.rkey, &s.bind[i]
	return true
}

// receiver holds the memory for converting lists of receives.
type receiver struct {
	mu   sync.Mutex // guards all fields
	wrs  [chunk]verbs.RecvWR
	sges []verbs.SGE
}

//export rnic_post_recv
func rnic_post_recv(h C.uint32_t, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) C.int {
	q, ok := get[*qp](h)
	if !ok {
		*bad = wr
		return einval
	}
	return q.recv.post(q.QP, wr, bad)
}

func (r *receiver) post(q interface {
	PostRecv(wrs []verbs.RecvWR) (int, error)
}, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) C.int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for wr != nil {
		n, next := r.take(wr)
		if n == 0 {
			*bad = wr
			return einval
		}
		if done, err := q.PostRecv(r.wrs[:n]); err != nil {
			*bad = nextRecv(wr, done)
			return errno(err)
		}
		wr = next
	}
	return 0
}

// take converts the start of a list, like sender.take.
func (r *receiver) take(wr *C.struct_ibv_recv_wr) (n int, rest *C.struct_ibv_recv_wr) {
	r.sges = r.sges[:0]
	for ; wr != nil && n < chunk; wr = wr.next {
		if wr.num_sge < 0 || (wr.num_sge > 0 && wr.sg_list == nil) {
			break
		}
		r.wrs[n] = verbs.RecvWR{ID: uint64(wr.wr_id)}
		r.sges, r.wrs[n].SGL = elements(r.sges, wr.sg_list, wr.num_sge)
		n++
	}
	return n, wr
}
