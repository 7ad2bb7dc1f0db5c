// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// ibv_context is a context of the program. Its events are delivered to owner.
type ibv_context struct {
	*verbs.Context
	owner  unsafe.Pointer
	cancel context.CancelFunc
	done   chan struct{} // closed once no more events are delivered
}

//export rnic_open
func rnic_open(owner unsafe.Pointer, to *C.uint32_t) C.int {
	c, err := device.Open()
	if err != nil {
		return errno(err)
	}
	o := &ibv_context{Context: c, owner: owner, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go o.events(ctx)
	return keep(o, to)
}

// events delivers asynchronous events to the program. Events of objects that the program has
// destroyed are dropped.
func (c *ibv_context) events(ctx context.Context) {
	defer close(c.done)
	for {
		e, err := c.WaitEvent(ctx)
		if err != nil {
			return
		}
		say("%v", e)
		switch {
		case e.QP != nil:
			owners.tell(e.QP, func(owner unsafe.Pointer) { tellAsync(c.owner, e.Type, owner, 0) })
		case e.CQ != nil:
			owners.tell(e.CQ, func(owner unsafe.Pointer) { tellAsync(c.owner, e.Type, owner, 0) })
		case e.SRQ != nil:
			owners.tell(e.SRQ, func(owner unsafe.Pointer) { tellAsync(c.owner, e.Type, owner, 0) })
		default:
			tellAsync(c.owner, e.Type, nil, e.Port)
		}
	}
}

// Close closes all objects of the context, as the kernel does when its descriptor is closed. The
// program keeps the structures of these objects and may still destroy them one by one.
func (c *ibv_context) Close() error {
	if err := c.Context.CloseAll(); err != nil {
		return err
	}
	c.cancel()
	<-c.done
	return nil
}

// text copies a string into a C array, truncated to leave room for the terminating zero.
func text(to []C.char, s string) {
	for i := range min(len(s), len(to)-1) {
		to[i] = C.char(s[i])
	}
}

// guid returns a GUID in network byte order, as C has it.
func guid(g verbs.GUID) C.uint64_t {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(g))
	return C.uint64_t(binary.NativeEndian.Uint64(b[:]))
}

//export rnic_device
func rnic_device(d *C.struct_rnic_device) C.int {
	info := device.Info()
	text(d.name[:], info.Name)
	d.node_type, d.transport = C.int(info.NodeType), C.int(info.Transport)
	d.guid = guid(info.NodeGUID)
	d.comp_vectors = 1
	return 0
}

// noVendor is the vendor_id of a device without a vendor, because programs mistake 0 for an error.
// It has the locally administered bit, so it is no vendor's OUI.
const noVendor = 0x020000

//export rnic_query_device
func rnic_query_device(h C.uint32_t, a *C.struct_ibv_device_attr) C.int {
	c, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	d, err := c.QueryDevice()
	if err != nil {
		return errno(err)
	}
	text(a.fw_ver[:], d.FwVer)
	a.node_guid, a.sys_image_guid = guid(d.NodeGUID), guid(d.SysImageGUID)
	a.max_mr_size, a.page_size_cap = C.uint64_t(d.MaxMRSize), C.uint64_t(d.PageSizeCap)
	if d.VendorID == 0 {
		d.VendorID = noVendor
	}
	a.vendor_id, a.vendor_part_id, a.hw_ver = C.uint32_t(d.VendorID), C.uint32_t(d.VendorPartID), C.uint32_t(d.HWVer)
	a.max_qp, a.max_qp_wr = C.int(d.MaxQP), C.int(d.MaxQPWR)
	a.device_cap_flags = C.uint(d.DeviceCapFlags)
	a.max_sge, a.max_sge_rd = C.int(d.MaxSGE), C.int(d.MaxSGERd)
	a.max_cq, a.max_cqe, a.max_mr, a.max_pd = C.int(d.MaxCQ), C.int(d.MaxCQE), C.int(d.MaxMR), C.int(d.MaxPD)
	a.max_qp_rd_atom, a.max_res_rd_atom = C.int(d.MaxQPRdAtom), C.int(d.MaxResRdAtom)
	a.max_qp_init_rd_atom = C.int(d.MaxQPInitRdAtom)
	a.atomic_cap = C.uint(d.AtomicCap)
	a.max_mw, a.max_srq, a.max_srq_wr, a.max_srq_sge = C.int(d.MaxMW), C.int(d.MaxSRQ), C.int(d.MaxSRQWR),
		C.int(d.MaxSRQSGE)
	a.max_pkeys = C.uint16_t(d.MaxPKeys)
	a.local_ca_ack_delay, a.phys_port_cnt = C.uint8_t(d.LocalCAAckDelay), C.uint8_t(d.PhysPortCnt)
	return 0
}

//export rnic_query_port
func rnic_query_port(h C.uint32_t, port C.int, a *C.struct_ibv_port_attr) C.int {
	c, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	p, err := c.QueryPort(int(port))
	if err != nil {
		return errno(err)
	}
	if p.GIDTblLen == 0 {
		p.GIDTblLen = 1 // noGID
	}
	if p.ActiveWidth == 0 {
		p.ActiveWidth, p.ActiveSpeed = 1, 1 // 1X at 2.5 Gb/s, the lowest values, because the device has no link rate
	}
	*a = C.struct_ibv_port_attr{
		state: C.uint(p.State), max_mtu: C.uint(p.MaxMTU), active_mtu: C.uint(p.ActiveMTU),
		gid_tbl_len:    C.int(p.GIDTblLen),
		port_cap_flags: C.uint32_t(p.PortCapFlags), max_msg_sz: C.uint32_t(p.MaxMsgSz),
		bad_pkey_cntr:  C.uint32_t(p.BadPKeyCntr),
		qkey_viol_cntr: C.uint32_t(p.QKeyViolCntr), pkey_tbl_len: C.uint16_t(p.PKeyTblLen), lid: C.uint16_t(p.LID),
		sm_lid: C.uint16_t(p.SMLID), lmc: C.uint8_t(p.LMC), max_vl_num: C.uint8_t(p.MaxVLNum), sm_sl: C.uint8_t(p.SMSL),
		subnet_timeout: C.uint8_t(p.SubnetTimeout), init_type_reply: C.uint8_t(p.InitTypeReply),
		active_width: C.uint8_t(p.ActiveWidth), active_speed: C.uint8_t(p.ActiveSpeed),
		phys_state: C.uint8_t(p.PhysState), link_layer: C.uint8_t(p.LinkLayer),
		flags: C.uint8_t(p.Flags), port_cap_flags2: C.uint16_t(p.PortCapFlags2),
	}
	return 0
}

// noGID returns the only GID table entry of a device without GIDs, because programs treat a port
// without GIDs as broken. Other iWARP devices report their MAC address there, padded with zeros;
// this device reports its GUID.
func noGID() (g verbs.GID) {
	binary.BigEndian.PutUint64(g[:], uint64(device.Info().NodeGUID))
	return g
}

//export rnic_query_gid
func rnic_query_gid(h C.uint32_t, port, index C.int, to *C.struct_ibv_gid_entry) C.int {
	c, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	e, err := c.QueryGID(int(port), int(index))
	if errors.Is(err, verbs.ErrNotSupported) && port == 1 && index == 0 {
		e, err = verbs.GIDEntry{GID: noGID()}, nil
	}
	if err != nil {
		return errno(err)
	}
	if e.GID.IsZero() {
		return C.int(syscall.ENODATA)
	}
	for i, b := range e.GID {
		*(*byte)(unsafe.Add(unsafe.Pointer(&to.gid), i)) = b
	}
	to.gid_index, to.port_num = C.uint32_t(index), C.uint32_t(port)
	to.gid_type = C.uint32_t(e.Type)
	if i, err := net.InterfaceByName(e.NetDev); err == nil {
		to.ndev_ifindex = C.uint32_t(i.Index)
	}
	return 0
}

//export rnic_query_pkey
func rnic_query_pkey(h C.uint32_t, port, index C.int, to *C.uint16_t) C.int {
	c, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	k, err := c.QueryPKey(int(port), int(index))
	if err != nil {
		return errno(err)
	}
	*to = C.uint16_t(k)
	return 0
}
