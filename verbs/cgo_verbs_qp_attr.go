// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

func qpAttrToC(a *QPAttr) C.struct_ibv_qp_attr {
	return C.struct_ibv_qp_attr{
		qp_state:            C.enum_ibv_qp_state(a.State),
		cur_qp_state:        C.enum_ibv_qp_state(a.CurState),
		path_mtu:            C.enum_ibv_mtu(a.PathMTU),
		qkey:                C.uint32_t(a.QKey),
		rq_psn:              C.uint32_t(a.RQPSN),
		sq_psn:              C.uint32_t(a.SQPSN),
		dest_qp_num:         C.uint32_t(a.DestQPNum),
		qp_access_flags:     C.uint(a.AccessFlags),
		ah_attr:             ahToC(a.AH),
		pkey_index:          C.uint16_t(a.PKeyIndex),
		en_sqd_async_notify: C.uint8_t(boolInt(a.SQDAsyncNotify)),
		max_rd_atomic:       C.uint8_t(a.MaxRdAtomic),
		max_dest_rd_atomic:  C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer:       C.uint8_t(a.MinRNRTimer),
		port_num:            C.uint8_t(a.PortNum),
		timeout:             C.uint8_t(a.Timeout),
		retry_cnt:           C.uint8_t(a.RetryCnt),
		rnr_retry:           C.uint8_t(a.RNRRetry),
	}
}

// qpAttrFromC converts what the kernel tells, without the sizes, which may be larger than those that the program is told.
func qpAttrFromC(c *C.struct_ibv_qp_attr) QPAttr {
	return QPAttr{
		State:           QPState(c.qp_state),
		PathMTU:         MTU(c.path_mtu),
		QKey:            uint32(c.qkey),
		RQPSN:           uint32(c.rq_psn),
		SQPSN:           uint32(c.sq_psn),
		DestQPNum:       uint32(c.dest_qp_num),
		AccessFlags:     AccessFlags(c.qp_access_flags),
		AH:              ahFromC(&c.ah_attr),
		PKeyIndex:       uint16(c.pkey_index),
		SQDAsyncNotify:  c.en_sqd_async_notify != 0,
		MaxRdAtomic:     int(c.max_rd_atomic),
		MaxDestRdAtomic: int(c.max_dest_rd_atomic),
		MinRNRTimer:     uint8(c.min_rnr_timer),
		PortNum:         uint8(c.port_num),
		Timeout:         uint8(c.timeout),
		RetryCnt:        uint8(c.retry_cnt),
		RNRRetry:        uint8(c.rnr_retry),
	}
}
