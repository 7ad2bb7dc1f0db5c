// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/internal/dynlib"
	"github.com/goverbs/goverbs/internal/ibverbs"
)

// Only this file calls libibverbs: it implements the interfaces of package ibverbs. An object is a
// number. Its methods require that the object still exists.

// kernelLibrary returns libibverbs, or the reason why it is unavailable.
func kernelLibrary() (ibverbs.Library, error) { return rawLibrary{}, loadLibrary() }

// loadLibrary loads libibverbs once.
var loadLibrary = sync.OnceValue(func() error {
	return dynlib.Load("libibverbs.so.1", func(i int) (string, bool) {
		var optional C.int
		name := C.gv_function(C.int(i), &optional)
		return C.GoString(name), optional != 0
	}, func(i int, address uintptr) {
		C.gv_set_function(C.int(i), C.uintptr_t(address))
	})
})

// Compilation fails if one of these is not 0: the records must have the layout of the C structures.
var (
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.Send{}) - C.sizeof_struct_gv_wr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Send{}.Imm) - unsafe.Offsetof(C.struct_gv_wr{}.imm)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Send{}.Op) - unsafe.Offsetof(C.struct_gv_wr{}.op)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Send{}.Ext) - unsafe.Offsetof(C.struct_gv_wr{}.ext)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.Ext{}) - C.sizeof_struct_gv_ext]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Ext{}.A) - unsafe.Offsetof(C.struct_gv_ext{}.a)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Ext{}.D) - unsafe.Offsetof(C.struct_gv_ext{}.d)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.Recv{}) - C.sizeof_struct_gv_recv]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Recv{}.NumSGE) - unsafe.Offsetof(C.struct_gv_recv{}.num_sge)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.SGE{}) - C.sizeof_struct_gv_sge]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.SGE{}.LKey) - unsafe.Offsetof(C.struct_gv_sge{}.lkey)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.WC{}) - C.sizeof_struct_gv_wc]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.Flags) - unsafe.Offsetof(C.struct_gv_wc{}.flags)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.ByteLen) - unsafe.Offsetof(C.struct_gv_wc{}.byte_len)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.Imm64) - unsafe.Offsetof(C.struct_gv_wc{}.imm64)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.InvalidatedRKey) -
		unsafe.Offsetof(C.struct_gv_wc{}.invalidated_rkey)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.SrcQP) - unsafe.Offsetof(C.struct_gv_wc{}.src_qp)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.WC{}.DLIDPathBits) -
		unsafe.Offsetof(C.struct_gv_wc{}.dlid_path_bits)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.DeviceAttr{}) - C.sizeof_struct_gv_device_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.NodeGUID) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.node_guid)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.PageSizeCap) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.page_size_cap)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.CapFlags) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.device_cap_flags)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.MaxPD) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.max_pd)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.AtomicCap) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.atomic_cap)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.NumCompVectors) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.num_comp_vectors)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.MaxRawEthyQP) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.max_raw_ethy_qp)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.MaxMapPerFMR) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.max_map_per_fmr)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttr{}.LocalCAAckDelay) -
		unsafe.Offsetof(C.struct_gv_device_attr{}.local_ca_ack_delay)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.DeviceAttrEx{}) - C.sizeof_struct_gv_device_attr_ex]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.RSSFieldsMask) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.rss_fields_mask)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.ODPXRC) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.odp_xrc)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.TSOQPTs) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.tso_qpts)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.RSSTableSize) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.rss_table_size)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.PacingQPTs) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.pacing_qpts)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.TMSGE) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.tm_sge)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.ModPeriod) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.mod_period)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.DeviceAttrEx{}.RSSFunction) -
		unsafe.Offsetof(C.struct_gv_device_attr_ex{}.rss_function)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.PortAttr{}) - C.sizeof_struct_gv_port_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.MaxMsgSz) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.max_msg_sz)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.QKeyViolCntr) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.qkey_viol_cntr)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.GIDTblLen) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.gid_tbl_len)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.PortCapFlags2) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.port_cap_flags2)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.LinkLayer) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.link_layer)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.PortAttr{}.Flags) -
		unsafe.Offsetof(C.struct_gv_port_attr{}.flags)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.GID{}) - C.sizeof_struct_gv_gid]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.GID{}.Type) - unsafe.Offsetof(C.struct_gv_gid{}._type)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.GID{}.NetDev) - unsafe.Offsetof(C.struct_gv_gid{}.netdev)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.Keys{}) - C.sizeof_struct_gv_keys]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Keys{}.RKey) - unsafe.Offsetof(C.struct_gv_keys{}.rkey)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.SRQAttr{}) - C.sizeof_struct_gv_srq_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.SRQAttr{}.Limit) -
		unsafe.Offsetof(C.struct_gv_srq_attr{}.srq_limit)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.AHAttr{}) - C.sizeof_struct_gv_ah_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.AHAttr{}.FlowLabel) -
		unsafe.Offsetof(C.struct_gv_ah_attr{}.flow_label)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.AHAttr{}.TrafficClass) -
		unsafe.Offsetof(C.struct_gv_ah_attr{}.traffic_class)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.AHAttr{}.DLID) - unsafe.Offsetof(C.struct_gv_ah_attr{}.dlid)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.AHAttr{}.IsGlobal) -
		unsafe.Offsetof(C.struct_gv_ah_attr{}.is_global)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.AHAttr{}.PortNum) -
		unsafe.Offsetof(C.struct_gv_ah_attr{}.port_num)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.QPCap{}) - C.sizeof_struct_gv_qp_cap]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPCap{}.MaxInlineData) -
		unsafe.Offsetof(C.struct_gv_qp_cap{}.max_inline_data)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.QPAttr{}) - C.sizeof_struct_gv_qp_attr]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.AccessFlags) -
		unsafe.Offsetof(C.struct_gv_qp_attr{}.qp_access_flags)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.Cap) - unsafe.Offsetof(C.struct_gv_qp_attr{}.cap)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.AH) - unsafe.Offsetof(C.struct_gv_qp_attr{}.ah)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.PKeyIndex) -
		unsafe.Offsetof(C.struct_gv_qp_attr{}.pkey_index)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.SQDAsyncNotify) -
		unsafe.Offsetof(C.struct_gv_qp_attr{}.en_sqd_async_notify)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.MinRNRTimer) -
		unsafe.Offsetof(C.struct_gv_qp_attr{}.min_rnr_timer)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.QPAttr{}.RNRRetry) -
		unsafe.Offsetof(C.struct_gv_qp_attr{}.rnr_retry)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ibverbs.Event{}) - C.sizeof_struct_gv_async]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Event{}.Port) - unsafe.Offsetof(C.struct_gv_async{}.port)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(ibverbs.Event{}.Cookie) - unsafe.Offsetof(C.struct_gv_async{}.cookie)]struct{}{}
	_ [0]struct{} = [ibverbs.FlagsShift - C.GV_FLAGS_SHIFT]struct{}{}
	_ [0]struct{} = [ibverbs.SGEsShift - C.GV_SGES_SHIFT]struct{}{}
	_ [0]struct{} = [ibverbs.Broken - C.GV_BROKEN]struct{}{}
	_ [0]struct{} = [ibverbs.PollErrors - C.GV_ERRORS]struct{}{}
	_ [0]struct{} = [ibverbs.NoErrno - C.GV_NO_ERRNO]struct{}{}
	_ [0]struct{} = [ibverbs.ReregInput - C.GV_REREG_ERR_INPUT]struct{}{}
	_ [0]struct{} = [ibverbs.ReregDontFork - C.GV_REREG_ERR_DONT_FORK_NEW]struct{}{}
)

// errnoOf converts a result of cgo_verbs.c to an error.
func errnoOf(rc C.int) error {
	switch {
	case rc == 0:
		return nil
	case rc < 0:
		return ibverbs.NoErrno
	}
	return syscall.Errno(rc)
}

func boolInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

type rawLibrary struct{}

func (rawLibrary) Devices() ([]ibverbs.Device, error) {
	var list *C.struct_gv_device
	var n C.int
	if rc := C.gv_devices(&list, &n); rc != 0 {
		return nil, errnoOf(rc)
	}
	defer C.free(unsafe.Pointer(list))
	devices := make([]ibverbs.Device, n)
	for i, d := range unsafe.Slice(list, n) {
		devices[i] = ibverbs.Device{Name: C.GoString(&d.name[0]), GUID: uint64(d.guid), NodeType: int(d.node_type),
			Transport: int(d.transport)}
	}
	return devices, nil
}

// forkInit asks libibverbs once, before the first device is opened, to exclude registered memory
// from fork.
var forkInit = sync.OnceFunc(func() {
	// The result is 0 or an errno: ENOSYS if the kernel does not support it, EINVAL if C code of
	// the program has already registered memory. Devices work in either case. Only a fork without
	// exec is unsafe then, and Go never does that.
	C.gv_fork_init()
})

func (rawLibrary) Open(name string, guid uint64) (ibverbs.Context, error) {
	forkInit()
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var c C.uintptr_t
	var fd C.int
	if rc := C.gv_open(cName, C.uint64_t(guid), &c, &fd); rc != 0 {
		return nil, errnoOf(rc)
	}
	return rawContext{c, int(fd)}, nil
}

// rawContext is a struct ibv_context.
type rawContext struct {
	c      C.uintptr_t
	events int
}

func (ctx rawContext) FDs() (commands, events int) { return int(C.gv_context_fd(ctx.c)), ctx.events }

func (ctx rawContext) QueryDevice(a *ibverbs.DeviceAttr) error {
	return errnoOf(C.gv_query_device(ctx.c, (*C.struct_gv_device_attr)(unsafe.Pointer(a))))
}

func (ctx rawContext) QueryDeviceEx(a *ibverbs.DeviceAttrEx) error {
	return errnoOf(C.gv_query_device_ex(ctx.c, (*C.struct_gv_device_attr_ex)(unsafe.Pointer(a))))
}

func (ctx rawContext) QueryPort(port int, a *ibverbs.PortAttr) error {
	return errnoOf(C.gv_query_port(ctx.c, C.uint8_t(port), (*C.struct_gv_port_attr)(unsafe.Pointer(a))))
}

func (ctx rawContext) QueryGID(port, index int, g *ibverbs.GID) error {
	return errnoOf(C.gv_query_gid(ctx.c, C.uint32_t(port), C.uint32_t(index), (*C.struct_gv_gid)(unsafe.Pointer(g))))
}

func (ctx rawContext) QueryPKey(port, index int) (uint16, error) {
	var key C.uint16_t
	rc := C.gv_query_pkey(ctx.c, C.uint8_t(port), C.int(index), &key)
	return uint16(key), errnoOf(rc)
}

func (ctx rawContext) Event() (e ibverbs.Event, err error) {
	rc := C.gv_async_event(ctx.c, (*C.struct_gv_async)(unsafe.Pointer(&e)))
	return e, errnoOf(rc)
}

func (ctx rawContext) Gather(to []byte, from []ibverbs.SGE) {
	C.gv_gather(unsafe.Pointer(unsafe.SliceData(to)), (*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(from))),
		C.int(len(from)))
}

func (ctx rawContext) Close() error { return errnoOf(C.gv_close(ctx.c)) }

// rawPD is a struct ibv_pd.
type rawPD uintptr

func (ctx rawContext) AllocPD() (ibverbs.PD, error) {
	var out C.uintptr_t
	if rc := C.gv_alloc_pd(ctx.c, &out); rc != 0 {
		return nil, errnoOf(rc)
	}
	return rawPD(out), nil
}

func (pd rawPD) Handle() uint32 { return uint32(C.gv_pd_handle(C.uintptr_t(pd))) }
func (pd rawPD) Dealloc() error { return errnoOf(C.gv_dealloc_pd(C.uintptr_t(pd))) }

// rawAH is a struct ibv_ah.
type rawAH uintptr

func (pd rawPD) CreateAH(a *ibverbs.AHAttr) (ibverbs.AH, error) {
	var out C.uintptr_t
	if rc := C.gv_create_ah(C.uintptr_t(pd), (*C.struct_gv_ah_attr)(unsafe.Pointer(a)), &out); rc != 0 {
		return nil, errnoOf(rc)
	}
	return rawAH(out), nil
}

func (ah rawAH) Handle() uint64 { return uint64(ah) }
func (ah rawAH) Destroy() error { return errnoOf(C.gv_destroy_ah(C.uintptr_t(ah))) }

// rawMR is a struct ibv_mr with its keys.
type rawMR struct {
	c    C.uintptr_t
	keys ibverbs.Keys
}

func (pd rawPD) RegMR(addr uintptr, length int, iova uint64, access uint32) (ibverbs.MR, error) {
	m := new(rawMR)
	if rc := C.gv_reg_mr(C.uintptr_t(pd), C.uintptr_t(addr), C.size_t(length), C.uint64_t(iova), C.uint(access), &m.c,
		m.cKeys()); rc != 0 {
		return nil, errnoOf(rc)
	}
	return m, nil
}

func (pd rawPD) RegDmabufMR(offset, length, iova uint64, fd int, access uint32) (ibverbs.MR, error) {
	m := new(rawMR)
	if rc := C.gv_reg_dmabuf_mr(C.uintptr_t(pd), C.uint64_t(offset), C.size_t(length), C.uint64_t(iova), C.int(fd),
		C.int(access), &m.c, m.cKeys()); rc != 0 {
		return nil, errnoOf(rc)
	}
	return m, nil
}

func (m *rawMR) cKeys() *C.struct_gv_keys { return (*C.struct_gv_keys)(unsafe.Pointer(&m.keys)) }

func (m *rawMR) Handle() uint64     { return uint64(m.c) }
func (m *rawMR) Keys() ibverbs.Keys { return m.keys }
func (m *rawMR) Dereg() error       { return errnoOf(C.gv_dereg_mr(m.c)) }

func (m *rawMR) Rereg(flags int, pd ibverbs.PD, addr uintptr, length int, access uint32) (int, error) {
	to, _ := pd.(rawPD) // 0 = none
	var errno C.int
	rc := C.gv_rereg_mr(m.c, C.int(flags), C.uintptr_t(to), C.uintptr_t(addr), C.size_t(length), C.int(access), &errno,
		m.cKeys())
	return int(rc), errnoOf(errno)
}

// rawMW is a struct ibv_mw.
type rawMW uintptr

func (pd rawPD) AllocMW(typ int) (ibverbs.MW, error) {
	var out C.uintptr_t
	if rc := C.gv_alloc_mw(C.uintptr_t(pd), C.int(typ), &out); rc != 0 {
		return nil, errnoOf(rc)
	}
	return rawMW(out), nil
}

func (mw rawMW) Handle() uint64 { return uint64(mw) }
func (mw rawMW) RKey() uint32   { return uint32(C.gv_mw_rkey(C.uintptr_t(mw))) }
func (mw rawMW) Dealloc() error { return errnoOf(C.gv_dealloc_mw(C.uintptr_t(mw))) }

// rawChannel is a struct ibv_comp_channel.
type rawChannel uintptr

func (ctx rawContext) CreateChannel() (ibverbs.Channel, error) {
	var out C.uintptr_t
	if rc := C.gv_create_comp_channel(ctx.c, &out); rc != 0 {
		return nil, errnoOf(rc)
	}
	return rawChannel(out), nil
}

func (ch rawChannel) FD() int { return int(C.gv_channel_fd(C.uintptr_t(ch))) }

func (ch rawChannel) Event() (cookie uint64, err error) {
	var out C.uint64_t
	rc := C.gv_cq_event(C.uintptr_t(ch), &out)
	return uint64(out), errnoOf(rc)
}

func (ch rawChannel) Destroy() error { return errnoOf(C.gv_destroy_comp_channel(C.uintptr_t(ch))) }

// rawCQ is a struct ibv_cq with the flag by which the device reports IBV_WC_WITH_INV.
type rawCQ struct {
	c       C.uintptr_t
	withInv C.uint
}

func (ctx rawContext) CreateCQ(cfg ibverbs.CQConfig) (cq ibverbs.CQ, room int, err error) {
	made := &rawCQ{withInv: C.uint(cfg.WithInv)}
	ch, _ := cfg.Channel.(rawChannel) // 0 = none
	var n C.int
	if rc := C.gv_create_cq(ctx.c, C.int(cfg.CQE), C.uint64_t(cfg.Cookie), C.uintptr_t(ch), C.int(cfg.Vector),
		&made.c, &n); rc != 0 {
		return nil, 0, errnoOf(rc)
	}
	return made, int(n), nil
}

func (cq *rawCQ) Poll(wcs []ibverbs.WC, held *ibverbs.Held) int {
	return int(C.gv_poll(cq.c, (*C.struct_gv_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.int(len(wcs)), cq.withInv,
		(*C.uint32_t)(unsafe.Pointer(held))))
}

func (cq *rawCQ) Resize(cqe int) (int, error) {
	var n C.int
	rc := C.gv_resize_cq(cq.c, C.int(cqe), &n)
	return int(n), errnoOf(rc)
}

func (cq *rawCQ) ReqNotify(solicitedOnly bool) error {
	return errnoOf(C.gv_req_notify_cq(cq.c, boolInt(solicitedOnly)))
}

func (cq *rawCQ) Destroy() error { return errnoOf(C.gv_destroy_cq(cq.c)) }

// rawSRQ is a struct ibv_srq.
type rawSRQ uintptr

func (pd rawPD) CreateSRQ(cookie uint64, a ibverbs.SRQAttr) (ibverbs.SRQ, ibverbs.SRQAttr, error) {
	var out C.uintptr_t
	if rc := C.gv_create_srq(C.uintptr_t(pd), C.uint64_t(cookie), cSRQAttr(&a), &out); rc != 0 {
		return nil, ibverbs.SRQAttr{}, errnoOf(rc)
	}
	return rawSRQ(out), a, nil
}

func cSRQAttr(a *ibverbs.SRQAttr) *C.struct_gv_srq_attr {
	return (*C.struct_gv_srq_attr)(unsafe.Pointer(a))
}

func (s rawSRQ) Recv(wrs []ibverbs.Recv, sges []ibverbs.SGE) ibverbs.Posted {
	return ibverbs.Posted(C.gv_post_srq_recv(C.uintptr_t(s), (*C.struct_gv_recv)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.int(len(wrs))))
}

func (s rawSRQ) Modify(a ibverbs.SRQAttr, mask uint32) error {
	return errnoOf(C.gv_modify_srq(C.uintptr_t(s), cSRQAttr(&a), C.int(mask)))
}

func (s rawSRQ) Query() (a ibverbs.SRQAttr, err error) {
	rc := C.gv_query_srq(C.uintptr_t(s), cSRQAttr(&a))
	return a, errnoOf(rc)
}

func (s rawSRQ) Destroy() error { return errnoOf(C.gv_destroy_srq(C.uintptr_t(s))) }

// rawQP is a struct ibv_qp.
type rawQP uintptr

func (pd rawPD) CreateQP(cfg ibverbs.QPConfig) (ibverbs.QP, ibverbs.QPCap, uint32, error) {
	sendCQ, ok := cfg.SendCQ.(*rawCQ)
	recvCQ, ok2 := cfg.RecvCQ.(*rawCQ)
	if !ok || !ok2 {
		return nil, ibverbs.QPCap{}, 0, syscall.EINVAL
	}
	srq, _ := cfg.SRQ.(rawSRQ) // 0 = none
	var out C.uintptr_t
	var num C.uint32_t
	has := cfg.Cap
	c := (*C.struct_gv_qp_cap)(unsafe.Pointer(&has))
	var rc C.int
	if cfg.AtomicWrite {
		rc = C.gv_create_qp_ex(C.uintptr_t(pd), C.uint64_t(cfg.Cookie), sendCQ.c, recvCQ.c, C.uintptr_t(srq),
			C.int(cfg.Type), boolInt(cfg.SigAll), c, &out, &num)
	} else {
		rc = C.gv_create_qp(C.uintptr_t(pd), C.uint64_t(cfg.Cookie), sendCQ.c, recvCQ.c, C.uintptr_t(srq),
			C.int(cfg.Type), boolInt(cfg.SigAll), c, &out, &num)
	}
	if rc != 0 {
		return nil, ibverbs.QPCap{}, 0, errnoOf(rc)
	}
	return rawQP(out), has, uint32(num), nil
}

func (q rawQP) Send(wrs []ibverbs.Send, sges []ibverbs.SGE, ext []ibverbs.Ext, held *ibverbs.Held) ibverbs.Posted {
	return ibverbs.Posted(C.gv_post_send(C.uintptr_t(q), (*C.struct_gv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))),
		(*C.struct_gv_ext)(unsafe.Pointer(unsafe.SliceData(ext))),
		C.int(len(wrs)), (*C.uint32_t)(unsafe.Pointer(held))))
}

func (q rawQP) Recv(wrs []ibverbs.Recv, sges []ibverbs.SGE, held *ibverbs.Held) ibverbs.Posted {
	return ibverbs.Posted(C.gv_post_recv(C.uintptr_t(q), (*C.struct_gv_recv)(unsafe.Pointer(unsafe.SliceData(wrs))),
		(*C.struct_gv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.int(len(wrs)),
		(*C.uint32_t)(unsafe.Pointer(held))))
}

func (q rawQP) Modify(a *ibverbs.QPAttr, mask uint32) error {
	return errnoOf(C.gv_modify_qp(C.uintptr_t(q), (*C.struct_gv_qp_attr)(unsafe.Pointer(a)), C.int(mask)))
}

func (q rawQP) Query(a *ibverbs.QPAttr) error {
	return errnoOf(C.gv_query_qp(C.uintptr_t(q), (*C.struct_gv_qp_attr)(unsafe.Pointer(a))))
}

func (q rawQP) BindMW(id uint64, flags uint8, mw ibverbs.MW, mr ibverbs.MR, addr, length uint64,
	access uint32) error {
	return errnoOf(C.gv_bind_mw(C.uintptr_t(q), C.uint64_t(id), C.uint(flags), C.uintptr_t(mw.Handle()),
		C.uintptr_t(mr.Handle()), C.uint64_t(addr), C.uint64_t(length), C.uint(access)))
}

func (q rawQP) Mcast(gid [16]byte, lid uint16, attach bool) error {
	return errnoOf(C.gv_mcast(C.uintptr_t(q), (*C.uint8_t)(unsafe.Pointer(&gid)), C.uint16_t(lid), boolInt(attach)))
}

func (q rawQP) Destroy() error { return errnoOf(C.gv_destroy_qp(C.uintptr_t(q))) }
