// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/dynlib"
)

// Only this file calls libibverbs. An object is a number, 0 = none; the caller makes sure that it
// exists. Functions that return an int return 0 or an errno, which callError turns into an error.

type (
	rawContext uintptr // struct ibv_context
	rawPD      uintptr
	rawMR      uintptr
	rawMW      uintptr
	rawChannel uintptr // struct ibv_comp_channel
	rawCQ      uintptr
	rawQP      uintptr
	rawSRQ     uintptr
	rawAH      uintptr
)

// loadLibrary opens libibverbs once.
var loadLibrary = sync.OnceValue(func() error {
	return dynlib.Load("libibverbs.so.1", func(i int) (string, bool) {
		var optional C.int
		name := C.gv_function(C.int(i), &optional)
		return C.GoString(name), optional != 0
	}, func(i int, address uintptr) {
		C.gv_set_function(C.int(i), C.uintptr_t(address))
	})
})

// noErrno, or a larger number, is the result of a call that failed without telling why as its
// manual page says.
const noErrno = C.GV_NO_ERRNO

// Requests and completions cross in lists of these, which have the layout of their namesakes in
// cgo_verbs.h. So have SGE, WC and AHAttr.
type (
	flatSend struct { // struct gv_wr
		id, remoteAddr uint64
		rkey, imm      uint32
		op             uint32 // see flatOp
		ext            uint32 // 1 and the index of the flatExt, 0 = none
	}
	flatExt struct { // struct gv_ext
		p, q, a, b uint64
		c, d       uint32
	}
	flatRecv struct { // struct gv_recv
		id     uint64
		numSGE uint32
		_      uint32
	}
)

// Where the flags and the number of elements are in flatSend.op.
const (
	flagsShift = C.GV_FLAGS_SHIFT
	sgesShift  = C.GV_SGES_SHIFT
)

// Compiling fails if one of these is not 0.
var (
	_ [0]struct{} = [unsafe.Sizeof(flatSend{}) - C.sizeof_struct_gv_wr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(flatSend{}.ext) - unsafe.Offsetof(C.struct_gv_wr{}.ext)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(flatExt{}) - C.sizeof_struct_gv_ext]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(flatExt{}.d) - unsafe.Offsetof(C.struct_gv_ext{}.d)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(flatRecv{}) - C.sizeof_struct_gv_recv]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(SGE{}) - C.sizeof_struct_gv_sge]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(SGE{}.LKey) - unsafe.Offsetof(C.struct_gv_sge{}.lkey)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(WC{}) - C.sizeof_struct_gv_wc]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.Imm64) - unsafe.Offsetof(C.struct_gv_wc{}.imm64)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.InvalidatedRKey) - unsafe.Offsetof(
		C.struct_gv_wc{}.invalidated_rkey)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.DLIDPathBits) - unsafe.Offsetof(C.struct_gv_wc{}.dlid_path_bits)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(AHAttr{}) - C.sizeof_struct_gv_ah_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(GlobalRoute{}.TrafficClass) - unsafe.Offsetof(
		C.struct_gv_ah_attr{}.traffic_class)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(AHAttr{}.DLID) - unsafe.Offsetof(C.struct_gv_ah_attr{}.dlid)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(AHAttr{}.PortNum) - unsafe.Offsetof(C.struct_gv_ah_attr{}.port_num)]struct{}{}
)

// broken in the upper half of a post's result: the library did not tell how many requests it took.
const broken = C.GV_BROKEN

// postSend returns how many requests were taken in the low half, and in the upper half 0 or why not
// all. C stores 0 to atEnd, which may be nil, when it is done.
func (q rawQP) postSend(wrs []flatSend, sges []SGE, ext []flatExt, atEnd *atomic.Uint32) uint64 {
	return uint64(C.gv_post_send(C.uintptr_t(q), (*C.struct_gv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))),
		(*C.struct_gv_ext)(unsafe.Pointer(unsafe.SliceData(ext))),
		C.int(len(wrs)), (*C.uint32_t)(unsafe.Pointer(atEnd))))
}

// postRecv is postSend for receives.
func (q rawQP) postRecv(wrs []flatRecv, sges []SGE, atEnd *atomic.Uint32) uint64 {
	return uint64(C.gv_post_recv(C.uintptr_t(q), (*C.struct_gv_recv)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.int(len(wrs)),
		(*C.uint32_t)(unsafe.Pointer(atEnd))))
}

// postRecv is postSend for receives.
func (s rawSRQ) postRecv(wrs []flatRecv, sges []SGE) uint64 {
	return uint64(C.gv_post_srq_recv(C.uintptr_t(s), (*C.struct_gv_recv)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.int(len(wrs))))
}

// pollErrors in the result of a poll: one of the completions is not a success.
const pollErrors = C.GV_ERRORS

// poll returns the number of completions, or a negative number that means nothing but failure.
// withInv is the device's flag for what WCWithInv says; atEnd as in postSend.
func (cq rawCQ) poll(wcs []WC, withInv uint, atEnd *atomic.Uint32) int {
	return int(C.gv_poll(C.uintptr_t(cq), (*C.struct_gv_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.int(len(wcs)),
		C.uint(withInv), (*C.uint32_t)(unsafe.Pointer(atEnd))))
}

// copyElements copies the memory that elements name to a place that is large enough.
func copyElements(to []byte, sgl []SGE) {
	C.gv_gather(unsafe.Pointer(unsafe.SliceData(to)), (*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sgl))),
		C.int(len(sgl)))
}

// addressOf returns where memory is, for registration and for elements.
func addressOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// rawDevices lists the devices.
func rawDevices() ([]DeviceInfo, int) {
	var list *C.struct_gv_device
	var n C.int
	if rc := C.gv_devices(&list, &n); rc != 0 {
		return nil, int(rc)
	}
	defer C.free(unsafe.Pointer(list))
	devices := make([]DeviceInfo, n)
	for i, d := range unsafe.Slice(list, n) {
		devices[i] = DeviceInfo{Name: C.GoString(&d.name[0]), Provider: "ibverbs", NodeType: NodeType(d.node_type),
			Transport: Transport(d.transport), NodeGUID: GUID(d.guid)}
	}
	return devices, 0
}

func rawForkInit() { C.gv_fork_init() }

func rawOpen(name string, guid GUID) (ctx rawContext, asyncFD, rc int) {
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var c C.uintptr_t
	var fd C.int
	r := C.gv_open(cName, C.uint64_t(guid), &c, &fd)
	return rawContext(c), int(fd), int(r)
}

// fd is the descriptor by which the library tells the kernel its commands.
func (ctx rawContext) fd() int { return int(C.gv_context_fd(C.uintptr_t(ctx))) }

// handle is the number of the PD in commands.
func (pd rawPD) handle() uint32 { return uint32(C.gv_pd_handle(C.uintptr_t(pd))) }

// fd is the descriptor from which events are read.
func (ch rawChannel) fd() int { return int(C.gv_channel_fd(C.uintptr_t(ch))) }

func (ctx rawContext) close() int { return int(C.gv_close(C.uintptr_t(ctx))) }

func (ctx rawContext) queryDevice() (DeviceAttr, int) {
	var a C.struct_gv_device_attr
	if rc := C.gv_query_device(C.uintptr_t(ctx), &a); rc != 0 {
		return DeviceAttr{}, int(rc)
	}
	return DeviceAttr{
		FwVer:           C.GoString(&a.fw_ver[0]),
		NodeGUID:        GUID(a.node_guid),
		SysImageGUID:    GUID(a.sys_image_guid),
		MaxMRSize:       uint64(a.max_mr_size),
		PageSizeCap:     uint64(a.page_size_cap),
		VendorID:        uint32(a.vendor_id),
		VendorPartID:    uint32(a.vendor_part_id),
		HWVer:           uint32(a.hw_ver),
		MaxQP:           int(a.max_qp),
		MaxQPWR:         int(a.max_qp_wr),
		DeviceCapFlags:  DeviceCapFlags(a.device_cap_flags),
		MaxSGE:          int(a.max_sge),
		MaxSGERd:        int(a.max_sge_rd),
		MaxCQ:           int(a.max_cq),
		MaxCQE:          int(a.max_cqe),
		MaxMR:           int(a.max_mr),
		MaxPD:           int(a.max_pd),
		MaxQPRdAtom:     int(a.max_qp_rd_atom),
		MaxResRdAtom:    int(a.max_res_rd_atom),
		MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		AtomicCap:       AtomicCap(a.atomic_cap),
		MaxMW:           int(a.max_mw),
		MaxAH:           int(a.max_ah),
		MaxSRQ:          int(a.max_srq),
		MaxSRQWR:        int(a.max_srq_wr),
		MaxSRQSGE:       int(a.max_srq_sge),
		MaxPKeys:        int(a.max_pkeys),
		LocalCAAckDelay: uint8(a.local_ca_ack_delay),
		PhysPortCnt:     int(a.phys_port_cnt),
		NumCompVectors:  int(a.num_comp_vectors),

		MaxEERdAtom:           int(a.max_ee_rd_atom),
		MaxEEInitRdAtom:       int(a.max_ee_init_rd_atom),
		MaxEE:                 int(a.max_ee),
		MaxRDD:                int(a.max_rdd),
		MaxRawIPv6QP:          int(a.max_raw_ipv6_qp),
		MaxRawEthyQP:          int(a.max_raw_ethy_qp),
		MaxMcastGrp:           int(a.max_mcast_grp),
		MaxMcastQPAttach:      int(a.max_mcast_qp_attach),
		MaxTotalMcastQPAttach: int(a.max_total_mcast_qp_attach),
		MaxFMR:                int(a.max_fmr),
		MaxMapPerFMR:          int(a.max_map_per_fmr),
	}, 0
}

func (ctx rawContext) queryDeviceEx() (DeviceAttrEx, int) {
	var a C.struct_gv_device_attr_ex
	if rc := C.gv_query_device_ex(C.uintptr_t(ctx), &a); rc != 0 {
		return DeviceAttrEx{}, int(rc)
	}
	return DeviceAttrEx{
		ODP: ODPCaps{General: ODPGeneralCaps(a.odp_general), RC: ODPTransportCaps(a.odp_rc),
			UC: ODPTransportCaps(a.odp_uc), UD: ODPTransportCaps(a.odp_ud), XRC: ODPTransportCaps(a.odp_xrc)},
		CompletionTimestampMask: uint64(a.completion_timestamp_mask),
		HCACoreClock:            uint64(a.hca_core_clock),
		DeviceCapFlagsEx:        DeviceCapFlagsEx(a.device_cap_flags_ex),
		RawPacketCaps:           uint32(a.raw_packet_caps),
		MaxWQTypeRQ:             uint32(a.max_wq_type_rq),
		MaxDMSize:               uint64(a.max_dm_size),
		TSO:                     TSOCaps{MaxTSO: uint32(a.tso_max), SupportedQPTs: uint32(a.tso_qpts)},
		RSS: RSSCaps{SupportedQPTs: uint32(a.rss_qpts), MaxRWQIndirectionTables: uint32(a.rss_tables),
			MaxRWQIndirectionTableSize: uint32(a.rss_table_size), RXHashFieldsMask: uint64(a.rss_fields_mask),
			RXHashFunction: uint8(a.rss_function)},
		PacketPacing: PacketPacingCaps{QPRateLimitMin: uint32(a.pacing_min), QPRateLimitMax: uint32(a.pacing_max),
			SupportedQPTs: uint32(a.pacing_qpts)},
		TagMatching: TagMatchingCaps{MaxRndvHdrSize: uint32(a.tm_hdr), MaxNumTags: uint32(a.tm_tags),
			Flags: uint32(a.tm_flags), MaxOps: uint32(a.tm_ops), MaxSGE: uint32(a.tm_sge)},
		CQModeration: CQModerationCaps{MaxCQCount: uint16(a.mod_count), MaxCQPeriod: uint16(a.mod_period)},
		PCIAtomic: PCIAtomicCaps{FetchAdd: uint16(a.pci_fetch_add), Swap: uint16(a.pci_swap),
			CompareSwap: uint16(a.pci_compare_swap)},
	}, 0
}

func (ctx rawContext) queryPort(port int) (PortAttr, int) {
	var a C.struct_gv_port_attr
	if rc := C.gv_query_port(C.uintptr_t(ctx), C.uint8_t(port), &a); rc != 0 {
		return PortAttr{}, int(rc)
	}
	return PortAttr{
		State:       PortState(a.state),
		MaxMTU:      MTU(a.max_mtu),
		ActiveMTU:   MTU(a.active_mtu),
		GIDTblLen:   int(a.gid_tbl_len),
		MaxMsgSz:    uint32(a.max_msg_sz),
		PKeyTblLen:  int(a.pkey_tbl_len),
		LID:         uint16(a.lid),
		SMLID:       uint16(a.sm_lid),
		LMC:         uint8(a.lmc),
		ActiveWidth: uint8(a.active_width),
		ActiveSpeed: uint8(a.active_speed),
		PhysState:   uint8(a.phys_state),
		LinkLayer:   LinkLayer(a.link_layer),

		PortCapFlags:  uint32(a.port_cap_flags),
		PortCapFlags2: uint16(a.port_cap_flags2),
		BadPKeyCntr:   uint32(a.bad_pkey_cntr),
		QKeyViolCntr:  uint32(a.qkey_viol_cntr),
		MaxVLNum:      uint8(a.max_vl_num),
		SMSL:          uint8(a.sm_sl),
		SubnetTimeout: uint8(a.subnet_timeout),
		InitTypeReply: uint8(a.init_type_reply),
		Flags:         uint8(a.flags),
	}, 0
}

func (ctx rawContext) queryGID(port, index int) (GIDEntry, int) {
	var g C.struct_gv_gid
	if rc := C.gv_query_gid(C.uintptr_t(ctx), C.uint32_t(port), C.uint32_t(index), &g); rc != 0 {
		return GIDEntry{}, int(rc)
	}
	e := GIDEntry{Port: port, Index: index, Type: GIDType(g._type), NetDev: C.GoString(&g.netdev[0])}
	copy(e.GID[:], C.GoBytes(unsafe.Pointer(&g.raw[0]), 16))
	return e, 0
}

func (ctx rawContext) queryPKey(port, index int) (uint16, int) {
	var key C.uint16_t
	rc := C.gv_query_pkey(C.uintptr_t(ctx), C.uint8_t(port), C.int(index), &key)
	return uint16(key), int(rc)
}

// asyncEvent takes an event, which has been acknowledged, and the number of its object. The result
// is EAGAIN if there is none.
func (ctx rawContext) asyncEvent() (ev AsyncEvent, cookie uint64, rc int) {
	var out C.struct_gv_async
	r := C.gv_async_event(C.uintptr_t(ctx), &out)
	return AsyncEvent{Type: EventType(out._type), Port: int(out.port)}, uint64(out.cookie), int(r)
}

func (ctx rawContext) allocPD() (rawPD, int) {
	var out C.uintptr_t
	rc := C.gv_alloc_pd(C.uintptr_t(ctx), &out)
	return rawPD(out), int(rc)
}

func (pd rawPD) dealloc() int { return int(C.gv_dealloc_pd(C.uintptr_t(pd))) }

func (ctx rawContext) createCompChannel() (ch rawChannel, fd, rc int) {
	var out C.uintptr_t
	var f C.int
	r := C.gv_create_comp_channel(C.uintptr_t(ctx), &out, &f)
	return rawChannel(out), int(f), int(r)
}

// event takes an event, which has been acknowledged: the number of its CQ. The result is EAGAIN if
// there is none.
func (ch rawChannel) event() (cookie uint64, rc int) {
	var out C.uint64_t
	r := C.gv_cq_event(C.uintptr_t(ch), &out)
	return uint64(out), int(r)
}

func (ch rawChannel) destroy() int { return int(C.gv_destroy_comp_channel(C.uintptr_t(ch))) }

// createCQ also returns for how many completions there is room.
func (ctx rawContext) createCQ(cqe int, cookie uint64, ch rawChannel, vector int) (cq rawCQ, room, rc int) {
	var out C.uintptr_t
	var n C.int
	r := C.gv_create_cq(C.uintptr_t(ctx), C.int(cqe), C.uint64_t(cookie), C.uintptr_t(ch), C.int(vector), &out, &n)
	return rawCQ(out), int(n), int(r)
}

func (cq rawCQ) resize(cqe int) (room, rc int) {
	var n C.int
	r := C.gv_resize_cq(C.uintptr_t(cq), C.int(cqe), &n)
	return int(n), int(r)
}

func (cq rawCQ) reqNotify(solicitedOnly bool) int {
	return int(C.gv_req_notify_cq(C.uintptr_t(cq), C.int(boolInt(solicitedOnly))))
}

func (cq rawCQ) destroy() int { return int(C.gv_destroy_cq(C.uintptr_t(cq))) }

// mrKeys are the keys of a region.
type mrKeys struct{ lkey, rkey uint32 }

func keysFromC(k *C.struct_gv_keys) mrKeys { return mrKeys{uint32(k.lkey), uint32(k.rkey)} }

func (pd rawPD) regMR(addr uintptr, length int, iova uint64, access AccessFlags) (rawMR, mrKeys, int) {
	var out C.uintptr_t
	var keys C.struct_gv_keys
	rc := C.gv_reg_mr(C.uintptr_t(pd), C.uintptr_t(addr), C.size_t(length), C.uint64_t(iova), C.uint(access), &out,
		&keys)
	return rawMR(out), keysFromC(&keys), int(rc)
}

func (pd rawPD) regDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (rawMR, mrKeys, int) {
	var out C.uintptr_t
	var keys C.struct_gv_keys
	rc := C.gv_reg_dmabuf_mr(C.uintptr_t(pd), C.uint64_t(offset), C.size_t(length), C.uint64_t(iova), C.int(fd),
		C.int(access), &out, &keys)
	return rawMR(out), keysFromC(&keys), int(rc)
}

// The result of rereg for a region that was not changed.
const (
	reregErrInput       = C.GV_REREG_ERR_INPUT
	reregErrDontForkNew = C.GV_REREG_ERR_DONT_FORK_NEW
)

// rereg returns the result of ibv_rereg_mr(3), 0 or negative, and 0 or an errno.
func (mr rawMR) rereg(flags ReregFlags, pd rawPD, addr uintptr, length int,
	access AccessFlags) (keys mrKeys, rc, errno int) {
	var k C.struct_gv_keys
	var e C.int
	r := C.gv_rereg_mr(C.uintptr_t(mr), C.int(flags), C.uintptr_t(pd), C.uintptr_t(addr), C.size_t(length),
		C.int(access), &e, &k)
	return keysFromC(&k), int(r), int(e)
}

func (mr rawMR) dereg() int { return int(C.gv_dereg_mr(C.uintptr_t(mr))) }

func (pd rawPD) allocMW(t MWType) (rawMW, int) {
	var out C.uintptr_t
	rc := C.gv_alloc_mw(C.uintptr_t(pd), C.int(t), &out)
	return rawMW(out), int(rc)
}

func (mw rawMW) rkey() uint32 { return uint32(C.gv_mw_rkey(C.uintptr_t(mw))) }
func (mw rawMW) dealloc() int { return int(C.gv_dealloc_mw(C.uintptr_t(mw))) }

func srqAttrToC(a SRQAttr) C.struct_gv_srq_attr {
	return C.struct_gv_srq_attr{max_wr: C.uint32_t(a.MaxWR), max_sge: C.uint32_t(a.MaxSGE),
		srq_limit: C.uint32_t(a.SRQLimit)}
}

func srqAttrFromC(c *C.struct_gv_srq_attr) SRQAttr {
	return SRQAttr{MaxWR: int(c.max_wr), MaxSGE: int(c.max_sge), SRQLimit: int(c.srq_limit)}
}

// createSRQ also returns what the queue has.
func (pd rawPD) createSRQ(cookie uint64, attr SRQAttr) (rawSRQ, SRQAttr, int) {
	var out C.uintptr_t
	c := srqAttrToC(attr)
	rc := C.gv_create_srq(C.uintptr_t(pd), C.uint64_t(cookie), &c, &out)
	return rawSRQ(out), srqAttrFromC(&c), int(rc)
}

func (s rawSRQ) modify(attr SRQAttr, mask SRQAttrMask) int {
	c := srqAttrToC(attr)
	return int(C.gv_modify_srq(C.uintptr_t(s), &c, C.int(mask)))
}

func (s rawSRQ) query() (SRQAttr, int) {
	var c C.struct_gv_srq_attr
	rc := C.gv_query_srq(C.uintptr_t(s), &c)
	return srqAttrFromC(&c), int(rc)
}

func (s rawSRQ) destroy() int { return int(C.gv_destroy_srq(C.uintptr_t(s))) }

func (pd rawPD) createAH(attr AHAttr) (rawAH, int) {
	var out C.uintptr_t
	rc := C.gv_create_ah(C.uintptr_t(pd), (*C.struct_gv_ah_attr)(unsafe.Pointer(&attr)), &out)
	return rawAH(out), int(rc)
}

func (ah rawAH) destroy() int { return int(C.gv_destroy_ah(C.uintptr_t(ah))) }

func capToC(c QPCap) C.struct_gv_qp_cap {
	return C.struct_gv_qp_cap{
		max_send_wr:     C.uint32_t(c.MaxSendWR),
		max_recv_wr:     C.uint32_t(c.MaxRecvWR),
		max_send_sge:    C.uint32_t(c.MaxSendSGE),
		max_recv_sge:    C.uint32_t(c.MaxRecvSGE),
		max_inline_data: C.uint32_t(c.MaxInlineData),
	}
}

func capFromC(c *C.struct_gv_qp_cap) QPCap {
	return QPCap{
		MaxSendWR:     int(c.max_send_wr),
		MaxRecvWR:     int(c.max_recv_wr),
		MaxSendSGE:    int(c.max_send_sge),
		MaxRecvSGE:    int(c.max_recv_sge),
		MaxInlineData: int(c.max_inline_data),
	}
}

// rawQPConfig is the configuration of a QP.
type rawQPConfig struct {
	cookie         uint64
	sendCQ, recvCQ deviceCQ
	srq            deviceSRQ // nil = none
	typ            QPType
	sigAll         bool
	cap            QPCap
	atomicWrite    bool // made by ibv_create_qp_ex, to post WRAtomicWrite too
}

// createQP also returns the capacities that the QP has, and its number.
func (pd rawPD) createQP(cfg rawQPConfig) (q rawQP, has QPCap, num uint32, rc int) {
	var out C.uintptr_t
	var n C.uint32_t
	c := capToC(cfg.cap)
	sendCQ, recvCQ := C.uintptr_t(cfg.sendCQ.(rawCQ)), C.uintptr_t(cfg.recvCQ.(rawCQ))
	srq, _ := cfg.srq.(rawSRQ)
	if cfg.atomicWrite {
		rc = int(C.gv_create_qp_ex(C.uintptr_t(pd), C.uint64_t(cfg.cookie), sendCQ, recvCQ, C.uintptr_t(srq),
			C.int(cfg.typ), C.int(boolInt(cfg.sigAll)), &c, &out, &n))
	} else {
		rc = int(C.gv_create_qp(C.uintptr_t(pd), C.uint64_t(cfg.cookie), sendCQ, recvCQ, C.uintptr_t(srq),
			C.int(cfg.typ), C.int(boolInt(cfg.sigAll)), &c, &out, &n))
	}
	return rawQP(out), capFromC(&c), uint32(n), rc
}

func (q rawQP) modify(a *QPAttr, mask QPAttrMask) int {
	c := C.struct_gv_qp_attr{
		qp_state:            C.uint32_t(a.State),
		cur_qp_state:        C.uint32_t(a.CurState),
		path_mtu:            C.uint32_t(a.PathMTU),
		qkey:                C.uint32_t(a.QKey),
		rq_psn:              C.uint32_t(a.RQPSN),
		sq_psn:              C.uint32_t(a.SQPSN),
		dest_qp_num:         C.uint32_t(a.DestQPNum),
		qp_access_flags:     C.uint32_t(a.AccessFlags),
		ah:                  *(*C.struct_gv_ah_attr)(unsafe.Pointer(&a.AH)),
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
	return int(C.gv_modify_qp(C.uintptr_t(q), &c, C.int(mask)))
}

func (q rawQP) query() (QPAttr, int) {
	var c C.struct_gv_qp_attr
	if rc := C.gv_query_qp(C.uintptr_t(q), &c); rc != 0 {
		return QPAttr{}, int(rc)
	}
	return QPAttr{
		State:           QPState(c.qp_state),
		CurState:        QPState(c.cur_qp_state),
		PathMTU:         MTU(c.path_mtu),
		QKey:            uint32(c.qkey),
		RQPSN:           uint32(c.rq_psn),
		SQPSN:           uint32(c.sq_psn),
		DestQPNum:       uint32(c.dest_qp_num),
		AccessFlags:     AccessFlags(c.qp_access_flags),
		AH:              *(*AHAttr)(unsafe.Pointer(&c.ah)),
		PKeyIndex:       uint16(c.pkey_index),
		SQDAsyncNotify:  c.en_sqd_async_notify != 0,
		MaxRdAtomic:     int(c.max_rd_atomic),
		MaxDestRdAtomic: int(c.max_dest_rd_atomic),
		MinRNRTimer:     uint8(c.min_rnr_timer),
		PortNum:         uint8(c.port_num),
		Timeout:         uint8(c.timeout),
		RetryCnt:        uint8(c.retry_cnt),
		RNRRetry:        uint8(c.rnr_retry),
		Cap:             capFromC(&c.cap),
	}, 0
}

func (q rawQP) destroy() int { return int(C.gv_destroy_qp(C.uintptr_t(q))) }

func (q rawQP) bindMW(id uint64, flags SendFlags, mw rawMW, mr rawMR, addr, length uint64, access AccessFlags) int {
	return int(C.gv_bind_mw(C.uintptr_t(q), C.uint64_t(id), C.uint(flags), C.uintptr_t(mw), C.uintptr_t(mr),
		C.uint64_t(addr), C.uint64_t(length), C.uint(access)))
}

// mcast attaches the QP to a group, or detaches it.
func (q rawQP) mcast(gid GID, lid uint16, attach bool) int {
	return int(C.gv_mcast(C.uintptr_t(q), (*C.uint8_t)(unsafe.Pointer(&gid)), C.uint16_t(lid), C.int(boolInt(attach))))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
