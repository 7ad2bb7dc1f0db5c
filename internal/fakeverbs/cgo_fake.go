// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter
#include "fake.h"
*/
import "C"

import (
	"encoding/binary"
	"syscall"
	"unsafe"
)

// fn returns the number of a function. It panics if there is none of that name, so that a mistake
// in a test does not go unnoticed.
func fn(name string) C.int {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	n := C.fake_fn_by_name(c)
	if n < 0 {
		panic("fakeverbs: there is no function " + name)
	}
	return n
}

func cSymbol(name string) uintptr {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uintptr(C.fake_symbol(c))
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func cReset() {
	C.fake_reset()
	C.fake_reset_devices()
	C.fake_set_hot(0)
}

func cCount(name string) int { return int(C.fake_count(fn(name))) }
func cFail(name string, nth int, err syscall.Errno) {
	C.fake_fail(fn(name), C.uint64_t(nth), C.int(err))
}
func cFailAfter(name string, nth int, err syscall.Errno) {
	C.fake_fail_after(fn(name), C.uint64_t(nth), C.int(err))
}
func cDelay(name string, us int) { C.fake_delay(fn(name), C.int(us)) }
func cDelaying() bool            { return bool(C.fake_delaying()) }
func cHold(name string)          { C.fake_hold(fn(name)) }
func cHolding() bool             { return bool(C.fake_holding()) }
func cRelease()                  { C.fake_release() }
func cFailPost(name string, nth int, f PostFailure) {
	C.fake_fail_post(fn(name), C.uint64_t(nth), C.int(f.Index), C.int(f.Result), C.bool(f.NoBadWR))
}

func cArgs(name string) []uint64 {
	var call C.struct_fake_call
	if C.fake_last_call(fn(name), &call) == 0 {
		return nil
	}
	args := make([]uint64, call.nargs)
	for i := range args {
		args[i] = uint64(call.args[i])
	}
	return args
}

func cFaults() []string {
	var all []string
	var text [512]C.char
	for C.fake_take_fault(&text[0], C.size_t(len(text))) > 0 {
		all = append(all, C.GoString(&text[0]))
	}
	return all
}

func cLive() map[string]int {
	live := make(map[string]int)
	for k := range C.int(C.K_COUNT) {
		if n := int(C.fake_live(k)); n > 0 {
			live[C.GoString(C.kind_name(uint32(k)))] = n
		}
	}
	if n := int(C.fake_lists()); n > 0 {
		live["device list"] = n
	}
	return live
}

func cLastID(kind string) uint32 {
	for k := range C.int(C.K_COUNT) {
		if C.GoString(C.kind_name(uint32(k))) == kind {
			return uint32(C.fake_last_id(k))
		}
	}
	panic("fakeverbs: there is no kind of objects " + kind)
}

func cSetBlock(ms int)  { C.fake_set(&C.fake_block_ms, C.int(ms)) }
func cSetAuto(on bool)  { C.fake_set(&C.fake_auto, cbool(on)) }
func cSetLoop(on bool)  { C.fake_set(&C.fake_loop, cbool(on)) }
func cSetLate(on bool)  { C.fake_set(&C.fake_late_flush, cbool(on)) }
func cSetNewer(on bool) { C.fake_set(&C.fake_newer, cbool(on)) }
func cSetHot(mode int)  { C.fake_set_hot(C.int(mode)) }
func cSetFork(result, status int) {
	C.fake_set(&C.fake_fork_result, C.int(result))
	C.fake_set(&C.fake_fork_status, C.int(status))
}

func be32(v uint32) C.uint32_t {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return C.uint32_t(binary.NativeEndian.Uint32(b[:]))
}

// be64 converts between network and host byte order.
func be64(v C.__be64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(v))
	return binary.NativeEndian.Uint64(b[:])
}

func fromBE32(v C.uint32_t) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(v))
	return binary.BigEndian.Uint32(b[:])
}

func cWC(qpn uint32, w WC) C.struct_fake_wc {
	c := C.struct_fake_wc{
		wr_id: C.uint64_t(w.WRID), status: C.uint32_t(w.Status), opcode: C.uint32_t(w.Opcode),
		vendor_err: C.uint32_t(w.VendorErr), byte_len: C.uint32_t(w.ByteLen), imm: be32(w.Imm),
		qp_num: C.uint32_t(qpn), src_qp: C.uint32_t(w.SrcQP), flags: C.uint32_t(w.Flags),
		pkey_index: C.uint32_t(w.PKeyIndex), slid: C.uint32_t(w.SLID), sl: C.uint32_t(w.SL),
		path_bits: C.uint32_t(w.PathBits), solicited: C.bool(w.Solicited),
	}
	if w.InvalidatedRKey != 0 {
		c.imm = C.uint32_t(w.InvalidatedRKey)
	}
	return c
}

func cInjectWC(qpn uint32, kind int, w WC) bool {
	c := cWC(qpn, w)
	return C.fake_inject_wc(C.uint32_t(qpn), C.int(kind), &c) != 0
}

func cComplete(qpn uint32, recv bool, n int, status, bytes uint32) int {
	return int(C.fake_complete(C.uint32_t(qpn), cbool(recv), C.int(n), C.uint32_t(status), C.uint32_t(bytes)))
}

func cInjectAsync(dev int, event, id uint32) int {
	return int(C.fake_inject_async(C.int(dev), C.uint32_t(event), C.uint32_t(id)))
}

// cPosted returns the records from the given one on, and the total number of records.
func cPosted(from uint64) ([]WR, uint64) {
	const chunk = 32
	buf := (*[chunk]C.struct_fake_wr)(C.calloc(chunk, C.sizeof_struct_fake_wr))
	defer C.free(unsafe.Pointer(buf))
	var all []WR
	var total C.uint64_t
	C.fake_posted(C.uint64_t(from), &buf[0], 0, &total)
	if kept := uint64(8192); uint64(total) > kept && from < uint64(total)-kept {
		from = uint64(total) - kept
	}
	for from < uint64(total) {
		n := int(C.fake_posted(C.uint64_t(from), &buf[0], chunk, &total))
		if n == 0 {
			break
		}
		for i := range n {
			all = append(all, goWR(&buf[i]))
		}
		from += uint64(n)
	}
	return all, uint64(total)
}

func goWR(r *C.struct_fake_wr) WR {
	w := WR{
		Call: uint64(r.call), QPN: uint32(r.qpn), SRQ: uint32(r.srq), Recv: r.recv != 0, WRID: uint64(r.wr_id),
		Opcode: uint32(r.opcode), Flags: uint32(r.flags), NumSGE: int(r.num_sge), Imm: fromBE32(r.imm),
		InvalidateRKey: uint32(r.imm), RemoteAddr: uint64(r.remote_addr), RKey: uint32(r.rkey),
		CompareAdd: uint64(r.compare_add), Swap: uint64(r.swap), AH: uint32(r.ah), RemoteQPN: uint32(r.remote_qpn),
		RemoteQKey: uint32(r.remote_qkey), MW: uint32(r.mw), BindRKey: uint32(r.bind_rkey),
		BindLKey: uint32(r.bind_lkey), BindAddr: uint64(r.bind_addr), BindLength: uint64(r.bind_length),
		BindAccess: uint32(r.bind_access),
	}
	for i := range min(w.NumSGE, len(r.sge)) {
		w.SGEs = append(w.SGEs, SGE{uint64(r.sge[i].addr), uint32(r.sge[i].length), uint32(r.sge[i].lkey)})
	}
	if r.inline_len > 0 {
		w.Inline = C.GoBytes(unsafe.Pointer(&r.data[0]), C.int(r.inline_len))
	}
	return w
}

func cFlush(qpn uint32) int { return int(C.fake_flush(C.uint32_t(qpn))) }

func cQPs() []uint32 {
	var all []uint32
	for i := 0; ; i++ {
		n := uint32(C.fake_qp_nth(C.int(i)))
		if n == 0 {
			return all
		}
		all = append(all, n)
	}
}

func cMoveQP(qpn uint32, state int) bool { return bool(C.fake_move_qp(C.uint32_t(qpn), C.int(state))) }

func cSetDepths(qpn uint32, ord, ird int) bool {
	return bool(C.fake_set_depths(C.uint32_t(qpn), C.int(ord), C.int(ird)))
}

func goAH(a *C.struct_ibv_ah_attr) AHAttr {
	return AHAttr{
		DGID: *(*[16]byte)(unsafe.Pointer(&a.grh.dgid)), FlowLabel: uint32(a.grh.flow_label),
		SGIDIndex: uint8(a.grh.sgid_index), HopLimit: uint8(a.grh.hop_limit), TrafficClass: uint8(a.grh.traffic_class),
		DLID: uint16(a.dlid), SL: uint8(a.sl), SrcPathBits: uint8(a.src_path_bits), StaticRate: uint8(a.static_rate),
		IsGlobal: a.is_global != 0, Port: uint8(a.port_num),
	}
}

func cQP(qpn uint32) (QP, bool) {
	var a C.struct_ibv_qp_attr
	var init C.struct_ibv_qp_init_attr
	var mask, modifies C.int
	if C.fake_qp_info(C.uint32_t(qpn), &a, &init, &mask, &modifies) == 0 {
		return QP{}, false
	}
	return QP{
		Type: uint32(init.qp_type), SigAll: init.sq_sig_all != 0, Modifies: int(modifies), Mask: uint32(mask),
		MaxSendWR: uint32(init.cap.max_send_wr), MaxRecvWR: uint32(init.cap.max_recv_wr),
		MaxSendSGE: uint32(init.cap.max_send_sge), MaxRecvSGE: uint32(init.cap.max_recv_sge),
		MaxInline: uint32(init.cap.max_inline_data),
		State:     uint32(a.qp_state), Access: uint32(a.qp_access_flags), PKeyIndex: uint16(a.pkey_index),
		Port: uint8(a.port_num), QKey: uint32(a.qkey), PathMTU: uint32(a.path_mtu), DestQPN: uint32(a.dest_qp_num),
		RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), MaxRdAtomic: uint8(a.max_rd_atomic),
		MaxDestRdAtomic: uint8(a.max_dest_rd_atomic), MinRNRTimer: uint8(a.min_rnr_timer), Timeout: uint8(a.timeout),
		RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry), AH: goAH(&a.ah_attr),
	}, true
}

func cAH(id uint32) (AHAttr, bool) {
	var a C.struct_ibv_ah_attr
	ok := C.fake_ah_info(C.uint32_t(id), &a) != 0
	return goAH(&a), ok
}

func cMR(lkey uint32) (MR, bool) {
	var c C.struct_fake_call
	if C.fake_mr_info(C.uint32_t(lkey), &c) == 0 {
		return MR{}, false
	}
	return MR{Addr: uint64(c.args[0]), Length: uint64(c.args[1]), IOVA: uint64(c.args[2]), Access: uint32(c.args[3]),
		FD: int(int32(c.args[4])), Offset: uint64(c.args[5]), RKey: uint32(c.args[6]), PD: uint32(c.args[7])}, true
}

// Devices.

func cAttr(dev int) Attr {
	C.fake_lock()
	defer C.fake_unlock()
	x := &C.fake_dev[dev].attr
	a := &x.orig_attr
	return Attr{
		MaxMRSize: uint64(a.max_mr_size), PageSizeCap: uint64(a.page_size_cap), CapFlags: uint64(x.device_cap_flags_ex),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxSGERd: int(a.max_sge_rd),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd), MaxMW: int(a.max_mw),
		MaxQPRdAtom: int(a.max_qp_rd_atom), MaxQPInitRdAtom: int(a.max_qp_init_rd_atom), AtomicCap: int(a.atomic_cap),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge), MaxAH: int(a.max_ah),
		PhysPortCnt: int(a.phys_port_cnt), NodeType: int(C.fake_dev[dev].pub.node_type),
		TransportType: int(C.fake_dev[dev].pub.transport_type), ODPGeneral: uint64(x.odp_caps.general_caps),
		ODPRC:    uint32(x.odp_caps.per_transport_caps.rc_odp_caps),
		ODPUC:    uint32(x.odp_caps.per_transport_caps.uc_odp_caps),
		ODPUD:    uint32(x.odp_caps.per_transport_caps.ud_odp_caps),
		VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id), HWVer: uint32(a.hw_ver),
		SysImageGUID: be64(a.sys_image_guid), MaxResRdAtom: int(a.max_res_rd_atom), MaxPKeys: int(a.max_pkeys),
		LocalCAAckDelay: uint8(a.local_ca_ack_delay), NumCompVectors: int(C.fake_dev[dev].vectors),
		MaxEERdAtom: int(a.max_ee_rd_atom), MaxEEInitRdAtom: int(a.max_ee_init_rd_atom), MaxEE: int(a.max_ee),
		MaxRDD: int(a.max_rdd), MaxRawIPv6QP: int(a.max_raw_ipv6_qp), MaxRawEthyQP: int(a.max_raw_ethy_qp),
		MaxFMR:       int(a.max_fmr),
		MaxMapPerFMR: int(a.max_map_per_fmr), MaxMcastGrp: int(a.max_mcast_grp),
		MaxMcastQPAttach:      int(a.max_mcast_qp_attach),
		MaxTotalMcastQPAttach: int(a.max_total_mcast_qp_attach),
	}
}

func cSetAttr(dev int, v Attr) {
	C.fake_lock()
	defer C.fake_unlock()
	x := &C.fake_dev[dev].attr
	a := &x.orig_attr
	a.max_mr_size, a.page_size_cap = C.uint64_t(v.MaxMRSize), C.uint64_t(v.PageSizeCap)
	x.device_cap_flags_ex, a.device_cap_flags = C.uint64_t(v.CapFlags), C.uint(v.CapFlags)
	a.max_qp, a.max_qp_wr = C.int(v.MaxQP), C.int(v.MaxQPWR)
	a.max_sge, a.max_sge_rd = C.int(v.MaxSGE), C.int(v.MaxSGERd)
	a.max_cq, a.max_cqe = C.int(v.MaxCQ), C.int(v.MaxCQE)
	a.max_mr, a.max_pd, a.max_mw = C.int(v.MaxMR), C.int(v.MaxPD), C.int(v.MaxMW)
	a.max_qp_rd_atom, a.max_qp_init_rd_atom = C.int(v.MaxQPRdAtom), C.int(v.MaxQPInitRdAtom)
	a.atomic_cap = uint32(v.AtomicCap)
	a.max_srq, a.max_srq_wr, a.max_srq_sge = C.int(v.MaxSRQ), C.int(v.MaxSRQWR), C.int(v.MaxSRQSGE)
	a.max_ah, a.phys_port_cnt = C.int(v.MaxAH), C.uint8_t(v.PhysPortCnt)
	x.phys_port_cnt_ex = C.uint32_t(v.PhysPortCnt)
	C.fake_dev[dev].pub.node_type, C.fake_dev[dev].pub.transport_type = int32(v.NodeType), int32(v.TransportType)
	a.vendor_id, a.vendor_part_id, a.hw_ver = C.uint32_t(v.VendorID), C.uint32_t(v.VendorPartID), C.uint32_t(v.HWVer)
	a.sys_image_guid = C.__be64(be64(C.__be64(v.SysImageGUID)))
	a.max_res_rd_atom, a.max_pkeys = C.int(v.MaxResRdAtom), C.uint16_t(v.MaxPKeys)
	a.local_ca_ack_delay = C.uint8_t(v.LocalCAAckDelay)
	x.odp_caps.general_caps = C.uint64_t(v.ODPGeneral)
	x.odp_caps.per_transport_caps.rc_odp_caps = C.uint32_t(v.ODPRC)
	x.odp_caps.per_transport_caps.uc_odp_caps = C.uint32_t(v.ODPUC)
	x.odp_caps.per_transport_caps.ud_odp_caps = C.uint32_t(v.ODPUD)
	C.fake_dev[dev].vectors = C.int(v.NumCompVectors)
	a.max_ee_rd_atom, a.max_ee_init_rd_atom, a.max_ee, a.max_rdd = C.int(v.MaxEERdAtom), C.int(v.MaxEEInitRdAtom),
		C.int(v.MaxEE), C.int(v.MaxRDD)
	a.max_raw_ipv6_qp, a.max_raw_ethy_qp = C.int(v.MaxRawIPv6QP), C.int(v.MaxRawEthyQP)
	a.max_fmr, a.max_map_per_fmr = C.int(v.MaxFMR), C.int(v.MaxMapPerFMR)
	a.max_mcast_grp, a.max_mcast_qp_attach = C.int(v.MaxMcastGrp), C.int(v.MaxMcastQPAttach)
	a.max_total_mcast_qp_attach = C.int(v.MaxTotalMcastQPAttach)
}

func cSetExtended(dev int, n uint64) {
	C.fake_lock()
	defer C.fake_unlock()
	next := func() uint64 { n++; return n - 1 }
	x := &C.fake_dev[dev].attr
	x.completion_timestamp_mask, x.hca_core_clock, x.device_cap_flags_ex = C.uint64_t(next()), C.uint64_t(next()),
		C.uint64_t(next())
	x.tso_caps.max_tso, x.tso_caps.supported_qpts = C.uint32_t(next()), C.uint32_t(next())
	x.rss_caps.supported_qpts, x.rss_caps.max_rwq_indirection_tables = C.uint32_t(next()), C.uint32_t(next())
	x.rss_caps.max_rwq_indirection_table_size, x.rss_caps.rx_hash_fields_mask = C.uint32_t(next()), C.uint64_t(next())
	x.rss_caps.rx_hash_function, x.max_wq_type_rq = C.uint8_t(next()), C.uint32_t(next())
	p := &x.packet_pacing_caps
	p.qp_rate_limit_min, p.qp_rate_limit_max, p.supported_qpts = C.uint32_t(next()), C.uint32_t(next()),
		C.uint32_t(next())
	x.raw_packet_caps = C.uint32_t(next())
	t := &x.tm_caps
	t.max_rndv_hdr_size, t.max_num_tags, t.flags = C.uint32_t(next()), C.uint32_t(next()), C.uint32_t(next())
	t.max_ops, t.max_sge = C.uint32_t(next()), C.uint32_t(next())
	x.cq_mod_caps.max_cq_count, x.cq_mod_caps.max_cq_period = C.uint16_t(next()), C.uint16_t(next())
	x.max_dm_size = C.uint64_t(next())
	a := &x.pci_atomic_caps
	a.fetch_add, a.swap, a.compare_swap = C.uint16_t(next()), C.uint16_t(next()), C.uint16_t(next())
	x.xrc_odp_caps = C.uint32_t(next())
}

func cPort(dev, port int) Port {
	C.fake_lock()
	defer C.fake_unlock()
	p := &C.fake_dev[dev].port[port-1]
	return Port{
		State: int(p.state), MaxMTU: int(p.max_mtu), ActiveMTU: int(p.active_mtu), GIDTableLen: int(p.gid_tbl_len),
		CapFlags: uint32(p.port_cap_flags), MaxMsgSize: uint32(p.max_msg_sz), PKeyTableLen: int(p.pkey_tbl_len),
		LID: uint16(p.lid), SMLID: uint16(p.sm_lid), LMC: uint8(p.lmc), ActiveWidth: uint8(p.active_width),
		ActiveSpeed: uint8(p.active_speed), PhysState: uint8(p.phys_state), LinkLayer: uint8(p.link_layer),
		CapFlags2: uint16(p.port_cap_flags2), BadPKeyCntr: uint32(p.bad_pkey_cntr),
		QKeyViolCntr: uint32(p.qkey_viol_cntr),
		MaxVLNum:     uint8(p.max_vl_num), SMSL: uint8(p.sm_sl), SubnetTimeout: uint8(p.subnet_timeout),
		InitTypeReply: uint8(p.init_type_reply), Flags: uint8(p.flags),
	}
}

func cSetPort(dev, port int, v Port) {
	C.fake_lock()
	defer C.fake_unlock()
	C.fake_dev[dev].port[port-1] = C.struct_ibv_port_attr{
		state: uint32(v.State), max_mtu: uint32(v.MaxMTU), active_mtu: uint32(v.ActiveMTU),
		gid_tbl_len: C.int(v.GIDTableLen), port_cap_flags: C.uint32_t(v.CapFlags), max_msg_sz: C.uint32_t(v.MaxMsgSize),
		pkey_tbl_len: C.uint16_t(v.PKeyTableLen), lid: C.uint16_t(v.LID), sm_lid: C.uint16_t(v.SMLID),
		lmc: C.uint8_t(v.LMC), active_width: C.uint8_t(v.ActiveWidth), active_speed: C.uint8_t(v.ActiveSpeed),
		phys_state: C.uint8_t(v.PhysState), link_layer: C.uint8_t(v.LinkLayer),
		port_cap_flags2: C.uint16_t(v.CapFlags2),
		bad_pkey_cntr:   C.uint32_t(v.BadPKeyCntr), qkey_viol_cntr: C.uint32_t(v.QKeyViolCntr),
		max_vl_num: C.uint8_t(v.MaxVLNum),
		sm_sl:      C.uint8_t(v.SMSL), subnet_timeout: C.uint8_t(v.SubnetTimeout),
		init_type_reply: C.uint8_t(v.InitTypeReply),
		flags:           C.uint8_t(v.Flags),
	}
}

func cGIDs(dev int) []GID {
	C.fake_lock()
	defer C.fake_unlock()
	var all []GID
	for _, g := range C.fake_dev[dev].gid[:C.fake_dev[dev].gids] {
		all = append(all, GID{*(*[16]byte)(unsafe.Pointer(&g.raw)), uint32(g.port), uint32(g.index), uint32(g._type),
			uint32(g.ifindex)})
	}
	return all
}

func cSetGIDs(dev int, all []GID) {
	C.fake_lock()
	defer C.fake_unlock()
	for i, g := range all {
		c := &C.fake_dev[dev].gid[i]
		*(*[16]byte)(unsafe.Pointer(&c.raw)) = g.GID
		c.port, c.index, c._type, c.ifindex = C.uint32_t(g.Port), C.uint32_t(g.Index), C.uint32_t(g.Type),
			C.uint32_t(g.IfIndex)
	}
	C.fake_dev[dev].gids = C.int(len(all))
}

func cSetPKeys(dev int, keys []uint16) {
	C.fake_lock()
	defer C.fake_unlock()
	table := &C.fake_dev[dev].pkey
	clear(table[:])
	for i, k := range keys {
		table[i] = C.uint16_t(k)
	}
}

func cSetHidden(dev int, hidden bool) {
	C.fake_lock()
	defer C.fake_unlock()
	C.fake_dev[dev].hidden = C.bool(hidden)
}

// Connections.

func cCMEvent(ev CMEvent) C.struct_fake_cm_event {
	c := C.struct_fake_cm_event{
		event: C.uint32_t(ev.Event), status: C.int32_t(ev.Status), err: C.int32_t(ev.Errno), qp_num: C.uint32_t(ev.QPN),
		qkey:                C.uint32_t(ev.QKey),
		responder_resources: C.uint8_t(ev.ResponderResources), initiator_depth: C.uint8_t(ev.InitiatorDepth),
		flow_control: C.uint8_t(ev.FlowControl), retry_count: C.uint8_t(ev.RetryCount),
		rnr_retry_count: C.uint8_t(ev.RNRRetryCount), srq: C.uint8_t(ev.SRQ), len: C.uint16_t(len(ev.PrivateData)),
	}
	for i, b := range ev.PrivateData {
		c.data[i] = C.uint8_t(b)
	}
	return c
}

func goCMEvent(c *C.struct_fake_cm_event) CMEvent {
	return CMEvent{
		Event: int(c.event), Status: int(c.status), QPN: uint32(c.qp_num), QKey: uint32(c.qkey),
		ResponderResources: uint8(c.responder_resources), InitiatorDepth: uint8(c.initiator_depth),
		FlowControl: uint8(c.flow_control), RetryCount: uint8(c.retry_count), RNRRetryCount: uint8(c.rnr_retry_count),
		SRQ: uint8(c.srq), PrivateData: C.GoBytes(unsafe.Pointer(&c.data[0]), C.int(c.len)),
	}
}

func cCMNext(name string, ev CMEvent) {
	c := cCMEvent(ev)
	C.fake_cm_next(fn(name), &c)
}

func cCMInject(id uint32, ev CMEvent) bool {
	c := cCMEvent(ev)
	return C.fake_cm_inject(C.uint32_t(id), &c) != 0
}

func cCMID(id uint32) (CMID, bool) {
	var c C.struct_fake_cm_id
	if C.fake_cm_info(C.uint32_t(id), &c) == 0 {
		return CMID{}, false
	}
	return CMID{
		ID: id, Channel: uint32(c.channel), State: CMState(c.state), PortSpace: uint32(c.ps), Peer: uint32(c.peer),
		Device: int(c.device) - 1, SrcPort: uint16(c.src_port), DstPort: uint16(c.dst_port), TOS: uint8(c.tos),
		TOSSet: c.tos_set != 0, ReuseAddr: c.reuseaddr != 0, AFOnly: c.afonly != 0, AFOnlySet: c.afonly_set != 0,
		AckTimeout: uint8(c.ack_timeout), Backlog: int(int32(c.backlog)), Disconnects: int(c.disconnects),
		Established: int(c.established), Param: goCMEvent(&c.param),
	}, true
}

func cCMLast() uint32 { return uint32(C.fake_cm_last()) }

// Measurements.

func cBenchPost(n, iters int) uint64 { return uint64(C.fake_bench_post(C.int(n), C.int(iters))) }
func cBenchPoll(n, iters int) uint64 { return uint64(C.fake_bench_poll(C.int(n), C.int(iters))) }

func cNop(iters int) {
	for range iters {
		C.fake_nop(0)
	}
}
