// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// qp is a queue pair.
type qp struct {
	*verbs.QP
	send sender
	recv receiver
}

//export rnic_create_qp
func rnic_create_qp(pdh C.uint32_t, owner unsafe.Pointer, sendh, recvh, srqh C.uint32_t, caps *C.struct_ibv_qp_cap,
	sigAll C.int, to, num *C.uint32_t) C.int {
	pd, ok := get[*verbs.PD](pdh)
	send, hasSend := get[*cq](sendh)
	recv, hasRecv := get[*cq](recvh)
	if !ok || !hasSend || !hasRecv {
		return einval
	}
	cfg := verbs.QPConfig{SendCQ: send.CQ, RecvCQ: recv.CQ, SigAll: sigAll != 0, Cap: verbs.QPCap{
		// A queue of length 0 becomes one of length 1: in Go 0 means the default.
		MaxSendWR: max(1, int(caps.max_send_wr)), MaxRecvWR: max(1, int(caps.max_recv_wr)),
		MaxSendSGE: max(1, int(caps.max_send_sge)), MaxRecvSGE: max(1, int(caps.max_recv_sge)),
		MaxInlineData: int(caps.max_inline_data)}}
	if srqh != 0 {
		s, ok := get[*srq](srqh)
		if !ok {
			return einval
		}
		cfg.SRQ, cfg.Cap.MaxRecvWR, cfg.Cap.MaxRecvSGE = s.SRQ, 0, 0
	}
	q, err := pd.CreateQP(cfg)
	if err != nil {
		return errno(err)
	}
	setCap(caps, q.Cap())
	*num = C.uint32_t(q.Num())
	owners.put(q, owner)
	return keep(&qp{QP: q}, to)
}

func setCap(to *C.struct_ibv_qp_cap, c verbs.QPCap) {
	to.max_send_wr, to.max_recv_wr = C.uint32_t(c.MaxSendWR), C.uint32_t(c.MaxRecvWR)
	to.max_send_sge, to.max_recv_sge = C.uint32_t(c.MaxSendSGE), C.uint32_t(c.MaxRecvSGE)
	to.max_inline_data = C.uint32_t(c.MaxInlineData)
}

func (q *qp) Close() error {
	if err := q.QP.Close(); err != nil {
		return err
	}
	owners.drop(q.QP)
	return q.send.close()
}

//export rnic_init_qp
func rnic_init_qp(h C.uint32_t) C.int {
	q, ok := get[*qp](h)
	if !ok {
		return einval
	}
	return errno(cmprovider.InitQP(q.QP))
}

// path lists the attributes that identify a QP's peer.
const path = verbs.QPAttrAV | verbs.QPAttrDestQPN | verbs.QPAttrSQPSN | verbs.QPAttrRQPSN | verbs.QPAttrTimeout

//export rnic_modify_qp
func rnic_modify_qp(h C.uint32_t, a *C.struct_ibv_qp_attr, mask C.int) C.int {
	q, ok := get[*qp](h)
	if !ok {
		return einval
	}
	m := verbs.QPAttrMask(mask)
	attr := verbs.QPAttr{
		State: verbs.QPState(a.qp_state), CurState: verbs.QPState(a.cur_qp_state), PathMTU: verbs.MTU(a.path_mtu),
		RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), DestQPNum: uint32(a.dest_qp_num),
		AccessFlags: verbs.AccessFlags(a.qp_access_flags) &^ C.IBV_ACCESS_OPTIONAL_RANGE,
		PKeyIndex:   uint16(a.pkey_index), PortNum: uint8(a.port_num),
		MaxRdAtomic: int(a.max_rd_atomic), MaxDestRdAtomic: int(a.max_dest_rd_atomic),
		MinRNRTimer: uint8(a.min_rnr_timer),
		Timeout:     uint8(a.timeout), RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry), QKey: uint32(a.qkey),
		SQDAsyncNotify: a.en_sqd_async_notify != 0,
	}
	if m&verbs.QPAttrAV != 0 {
		attr.AH = ahAttr(&a.ah_attr)
	}
	if m&verbs.QPAttrState != 0 && m&path == 0 && q.moved(attr.State) {
		if m &= verbs.QPAttrAccessFlags; m == 0 {
			return 0
		}
		attr.State = q.State() // only the rights change
		m |= verbs.QPAttrState
	}
	return errno(q.Modify(attr, m))
}

// moved reports whether a change of state can be skipped. A program that moves its QP itself with
// the attributes of rdma_init_qp_attr (rping -q) requests changes that name no path. Here
// connecting moves the QP: it has done so, or will.
func (q *qp) moved(to verbs.QPState) bool {
	switch q.State() {
	case verbs.QPStateInit:
		return to == verbs.QPStateRTR || to == verbs.QPStateRTS
	case verbs.QPStateRTR, verbs.QPStateRTS:
		return to == verbs.QPStateInit || to == verbs.QPStateRTR || to == verbs.QPStateRTS
	}
	return false
}

func ahAttr(a *C.struct_ibv_ah_attr) verbs.AHAttr {
	to := verbs.AHAttr{DLID: uint16(a.dlid), SL: uint8(a.sl), SrcPathBits: uint8(a.src_path_bits),
		StaticRate: uint8(a.static_rate), IsGlobal: a.is_global != 0, PortNum: uint8(a.port_num)}
	if to.IsGlobal {
		to.GRH = verbs.GlobalRoute{DGID: *(*verbs.GID)(unsafe.Pointer(&a.grh.dgid)),
			FlowLabel: uint32(a.grh.flow_label), SGIDIndex: uint8(a.grh.sgid_index), HopLimit: uint8(a.grh.hop_limit),
			TrafficClass: uint8(a.grh.traffic_class)}
	}
	return to
}

//export rnic_query_qp
func rnic_query_qp(h C.uint32_t, a *C.struct_ibv_qp_attr) C.int {
	q, ok := get[*qp](h)
	if !ok {
		return einval
	}
	v, err := q.Query()
	if err != nil {
		return errno(err)
	}
	a.qp_state, a.cur_qp_state = C.uint(v.State), C.uint(v.State)
	a.path_mtu, a.qkey = C.uint(v.PathMTU), C.uint32_t(v.QKey)
	a.rq_psn, a.sq_psn, a.dest_qp_num = C.uint32_t(v.RQPSN), C.uint32_t(v.SQPSN), C.uint32_t(v.DestQPNum)
	a.qp_access_flags = C.uint(v.AccessFlags)
	a.pkey_index, a.port_num = C.uint16_t(v.PKeyIndex), C.uint8_t(v.PortNum)
	a.max_rd_atomic, a.max_dest_rd_atomic = C.uint8_t(min(255, v.MaxRdAtomic)), C.uint8_t(min(255, v.MaxDestRdAtomic))
	a.min_rnr_timer, a.timeout = C.uint8_t(v.MinRNRTimer), C.uint8_t(v.Timeout)
	a.retry_cnt, a.rnr_retry = C.uint8_t(v.RetryCnt), C.uint8_t(v.RNRRetry)
	to := &a.ah_attr
	to.dlid, to.sl, to.src_path_bits = C.uint16_t(v.AH.DLID), C.uint8_t(v.AH.SL), C.uint8_t(v.AH.SrcPathBits)
	to.static_rate, to.port_num = C.uint8_t(v.AH.StaticRate), C.uint8_t(v.AH.PortNum)
	if v.AH.IsGlobal {
		to.is_global = 1
		*(*verbs.GID)(unsafe.Pointer(&to.grh.dgid)) = v.AH.GRH.DGID
		to.grh.flow_label, to.grh.sgid_index = C.uint32_t(v.AH.GRH.FlowLabel), C.uint8_t(v.AH.GRH.SGIDIndex)
		to.grh.hop_limit, to.grh.traffic_class = C.uint8_t(v.AH.GRH.HopLimit), C.uint8_t(v.AH.GRH.TrafficClass)
	}
	setCap(&a.cap, q.Cap())
	return 0
}
