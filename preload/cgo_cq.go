// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"context"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// channel delivers the events of its CQs to the program.
type channel struct {
	*verbs.CompChannel
	done chan struct{} // closed once no more events are delivered
}

//export rnic_create_channel
func rnic_create_channel(h C.uint32_t, to *C.uint32_t) C.int {
	c, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	ch, err := c.CreateCompChannel()
	if err != nil {
		return errno(err)
	}
	o := &channel{ch, make(chan struct{})}
	go o.events()
	return keep(o, to)
}

func (ch *channel) events() {
	defer close(ch.done)
	for {
		q, err := ch.Wait(context.Background())
		if err != nil {
			return // closed
		}
		owners.tell(q, tellCQ)
	}
}

func (ch *channel) Close() error {
	if err := ch.CompChannel.Close(); err != nil {
		return err
	}
	<-ch.done
	return nil
}

// batch is the maximum number of completions per poll. A program that asks for more gets the rest
// from its next poll.
const batch = 64

// cq is a completion queue.
type cq struct {
	*verbs.CQ

	mu  sync.Mutex // guards wcs
	wcs [batch]verbs.WC
}

//export rnic_create_cq
func rnic_create_cq(h C.uint32_t, owner unsafe.Pointer, cqe C.int, chh C.uint32_t, vector C.int, to *C.uint32_t,
	got *C.int) C.int {
	c, ok := get[*ibv_context](h)
	if !ok || cqe < 1 {
		return einval
	}
	cfg := verbs.CQConfig{CQE: int(cqe), CompVector: int(vector)}
	if ch, ok := get[*channel](chh); ok {
		cfg.Channel = ch.CompChannel
	}
	q, err := c.CreateCQ(cfg)
	if err != nil {
		return errno(err)
	}
	*got = C.int(q.CQE())
	owners.put(q, owner)
	return keep(&cq{CQ: q}, to)
}

func (q *cq) Close() error {
	if err := q.CQ.Close(); err != nil {
		return err
	}
	owners.drop(q.CQ)
	return nil
}

//export rnic_resize_cq
func rnic_resize_cq(h C.uint32_t, cqe C.int, got *C.int) C.int {
	q, ok := get[*cq](h)
	if !ok || cqe < 1 {
		return einval
	}
	if err := q.Resize(int(cqe)); err != nil {
		return errno(err)
	}
	*got = C.int(q.CQE())
	return 0
}

//export rnic_req_notify
func rnic_req_notify(h C.uint32_t, solicited C.int) C.int {
	q, ok := get[*cq](h)
	if !ok {
		return einval
	}
	return errno(q.ReqNotify(solicited != 0))
}

//export rnic_poll
func rnic_poll(h C.uint32_t, n C.int, to *C.struct_ibv_wc, got *C.int) C.int {
	q, ok := get[*cq](h)
	if !ok || n < 0 {
		return einval
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	wcs := q.wcs[:min(int(n), batch)]
	k, err := q.Poll(wcs)
	if k == 0 && err != nil {
		return errno(err)
	}
	out := unsafe.Slice(to, k)
	for i := range out {
		fill(&out[i], &wcs[i])
	}
	*got = C.int(k)
	return 0
}

// fill converts a completion to C, where immediates are in network byte order.
func fill(to *C.struct_ibv_wc, w *verbs.WC) {
	if w.Status != verbs.WCSuccess {
		sayFailed(w)
	}
	to.wr_id = C.uint64_t(w.ID)
	to.status, to.opcode, to.vendor_err = C.uint(w.Status), C.uint(w.Opcode), C.uint32_t(w.VendorErr)
	to.byte_len = C.uint32_t(w.ByteLen)
	*(*uint32)(unsafe.Pointer(&to.anon0)) = 0
	switch {
	case w.Flags&verbs.WCWithInv != 0:
		*(*uint32)(unsafe.Pointer(&to.anon0)) = w.InvalidatedRKey
	case w.Flags&verbs.WCWithImm != 0:
		*(*uint32)(unsafe.Pointer(&to.anon0)) = network(w.Imm)
	}
	to.qp_num, to.src_qp = C.uint32_t(w.QPNum), C.uint32_t(w.SrcQP)
	to.wc_flags = C.uint(w.Flags)
	to.pkey_index, to.slid = C.uint16_t(w.PKeyIndex), C.uint16_t(w.SLID)
	to.sl, to.dlid_path_bits = C.uint8_t(w.SL), C.uint8_t(w.DLIDPathBits)
}

var littleEndian = func() bool { n := uint16(1); return *(*byte)(unsafe.Pointer(&n)) == 1 }()

// network converts between host and network byte order.
func network(v uint32) uint32 {
	if littleEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}
