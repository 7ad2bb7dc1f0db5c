// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

type cgoAH struct {
	ctx *cgoContext
	c   *C.struct_ibv_ah
}

// CreateAH makes an address handle.
func (pd *cgoPD) CreateAH(attr AHAttr) (ProviderAH, error) {
	ah := &cgoAH{ctx: pd.ctx}
	if err := pd.ctx.counts.ah.add(); err != nil {
		return nil, err
	}
	ca := ahToC(attr)
	if err := callError("ibv_create_ah", C.gv_create_ah(pd.c, &ca, &ah.c)); err != nil {
		pd.ctx.counts.ah.remove()
		return nil, err
	}
	return ah, nil
}

// Destroy destroys the handle.
func (ah *cgoAH) Destroy() error {
	ah.ctx.counts.ah.remove()
	return callError("ibv_destroy_ah", C.gv_result(C.ibv_destroy_ah(ah.c))) // 0 or an errno
}

func ahToC(a AHAttr) C.struct_ibv_ah_attr {
	c := C.struct_ibv_ah_attr{
		dlid:          C.uint16_t(a.DLID),
		sl:            C.uint8_t(a.SL),
		src_path_bits: C.uint8_t(a.SrcPathBits),
		static_rate:   C.uint8_t(a.StaticRate),
		is_global:     C.uint8_t(boolInt(a.IsGlobal)),
		port_num:      C.uint8_t(a.PortNum),
	}
	c.grh.dgid = a.GRH.DGID
	c.grh.flow_label = C.uint32_t(a.GRH.FlowLabel)
	c.grh.sgid_index = C.uint8_t(a.GRH.SGIDIndex)
	c.grh.hop_limit = C.uint8_t(a.GRH.HopLimit)
	c.grh.traffic_class = C.uint8_t(a.GRH.TrafficClass)
	return c
}

func ahFromC(c *C.struct_ibv_ah_attr) AHAttr {
	return AHAttr{
		GRH: GlobalRoute{
			DGID:         GID(c.grh.dgid),
			FlowLabel:    uint32(c.grh.flow_label),
			SGIDIndex:    uint8(c.grh.sgid_index),
			HopLimit:     uint8(c.grh.hop_limit),
			TrafficClass: uint8(c.grh.traffic_class),
		},
		DLID:        uint16(c.dlid),
		SL:          uint8(c.sl),
		SrcPathBits: uint8(c.src_path_bits),
		StaticRate:  uint8(c.static_rate),
		IsGlobal:    c.is_global != 0,
		PortNum:     uint8(c.port_num),
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
