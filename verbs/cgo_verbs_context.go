// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/internal/eventfd"
)

// cgoContext is an open device.
type cgoContext struct {
	dev   *cgoDevice
	owner *Context
	c     *C.struct_ibv_context
	attr  DeviceAttr
	model model
	file  *eventfd.File
	async asyncQueue

	plug   *C.struct_ibv_cq // see plugHole
	counts struct{ pd, mr, mw, cq, qp, srq, ah objectCount }
}

// forkInit asks libibverbs once, before the first device is opened, to keep registered memory out of the way of fork.
var forkInit = sync.OnceFunc(func() {
	// 0 or an errno: ENOSYS from a kernel that cannot, EINVAL if C code of the program has registered memory
	// already. Devices work all the same; only a fork without exec is then unsafe, which Go does not do.
	C.ibv_fork_init()
})

// Open opens the device and begins to read its events.
func (d *cgoDevice) Open(owner *Context) (ProviderContext, error) {
	forkInit()
	name := C.CString(d.info.Name)
	defer C.free(unsafe.Pointer(name))
	c := &cgoContext{dev: d, owner: owner}
	if err := callError("ibv_open_device", C.gv_open(name, C.uint64_t(d.info.NodeGUID), &c.c)); err != nil {
		return nil, err
	}
	err := c.start()
	if err != nil {
		c.unplug()
		C.ibv_close_device(c.c)
		return nil, err
	}
	return c, nil
}

func (c *cgoContext) start() error {
	var err error
	if c.attr, err = c.queryDevice(); err != nil {
		return err
	}
	c.model = modelOf(c.dev.info, c.attr)
	if c.model.hole {
		c.plugHole()
	}
	if c.attr.MaxInlineData, err = c.dev.maxInline(c); err != nil {
		return err
	}
	if c.file, err = eventfd.New(int(c.c.async_fd), c.dev.info.Name+" events"); err != nil {
		return err
	}
	c.async.init()
	c.limitObjects()
	go c.readEvents()
	return nil
}

// QueryDevice returns what start learnt: attributes do not change while a device is open.
func (c *cgoContext) QueryDevice() (DeviceAttr, error) { return c.attr, nil }

// Ops is what the device's driver does, see model.
func (c *cgoContext) Ops() OpSet { return c.model.ops }

// Close ends every WaitEvent and the reader of events, and closes the device.
func (c *cgoContext) Close() error {
	err := c.file.Close()
	c.async.close()
	c.unplug()
	// 0, or -1 without errno by the manual.
	if rc := C.ibv_close_device(c.c); rc != 0 {
		return callError("ibv_close_device", -1)
	}
	return err
}

func (c *cgoContext) queryDevice() (DeviceAttr, error) {
	var a C.struct_ibv_device_attr
	if err := callError("ibv_query_device", C.gv_result(C.ibv_query_device(c.c, &a))); err != nil { // 0 or an errno
		return DeviceAttr{}, err
	}
	return DeviceAttr{
		FwVer:           C.GoString(&a.fw_ver[0]),
		NodeGUID:        GUID(C.gv_be64(C.uint64_t(a.node_guid))),
		SysImageGUID:    GUID(C.gv_be64(C.uint64_t(a.sys_image_guid))),
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
	}, nil
}

// QueryPort returns what the kernel says now.
func (c *cgoContext) QueryPort(port int) (PortAttr, error) {
	var a C.struct_ibv_port_attr
	if rc := C.gv_query_port(c.c, C.uint8_t(port), &a); rc != 0 {
		return PortAttr{}, callError("ibv_query_port", rc)
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
	}, nil
}

// QueryGID returns a row of the table.
func (c *cgoContext) QueryGID(port, index int) (GIDEntry, error) {
	var g C.struct_gv_gid
	switch rc := C.gv_query_gid(c.c, C.uint32_t(port), C.uint32_t(index), &g); {
	case rc == C.int(syscall.ENODATA) || rc == C.int(syscall.ENOENT):
		return GIDEntry{}, ErrNoGID
	case rc != 0:
		return GIDEntry{}, callError("ibv_query_gid_ex", rc)
	}
	e := GIDEntry{Port: port, Index: index, Type: GIDType(g._type), NetDev: C.GoString(&g.netdev[0])}
	copy(e.GID[:], C.GoBytes(unsafe.Pointer(&g.raw[0]), 16))
	if e.GID.IsZero() {
		return GIDEntry{}, ErrNoGID
	}
	return e, nil
}

// QueryPKey returns a partition key.
func (c *cgoContext) QueryPKey(port, index int) (uint16, error) {
	var key C.uint16_t
	rc := C.gv_query_pkey(c.c, C.uint8_t(port), C.int(index), &key)
	return uint16(key), callError("ibv_query_pkey", rc)
}
