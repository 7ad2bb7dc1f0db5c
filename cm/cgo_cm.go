// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

// #include "cgo_cm.h"
// #include <netinet/in.h>
import "C"

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/dynlib"
	"github.com/goverbs/goverbs/internal/eventfd"
	"github.com/goverbs/goverbs/verbs"
)

// Only this file calls librdmacm.

// cLibrary is librdmacm in C.
type cLibrary struct{}

func library() rdmaLibrary { return cLibrary{} }

// cChannel is a struct rdma_event_channel, and a file for waiting for its events.
type cChannel struct {
	c    *C.struct_rdma_event_channel
	file *eventfd.File
}

// cID is a struct rdma_cm_id.
type cID struct{ c *C.struct_rdma_cm_id }

// errno converts the result of a function in cgo_cm.c to an error.
func errno(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return syscall.Errno(-rc)
}

// A path is passed as a verbs.AHAttr, whose layout must match. Compiling fails if one of these is
// not 0.
var (
	_ [0]struct{} = [unsafe.Sizeof(verbs.AHAttr{}) - C.sizeof_struct_gocm_ah]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(verbs.GlobalRoute{}.TrafficClass) -
		unsafe.Offsetof(C.struct_gocm_ah{}.traffic_class)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(verbs.AHAttr{}.DLID) - unsafe.Offsetof(C.struct_gocm_ah{}.dlid)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(verbs.AHAttr{}.PortNum) - unsafe.Offsetof(C.struct_gocm_ah{}.port_num)]struct{}{}
)

// loadLibrary opens librdmacm once.
var loadLibrary = sync.OnceValue(func() error {
	return dynlib.Load("librdmacm.so.1", func(i int) (string, bool) {
		return C.GoString(C.gocm_function(C.int(i))), false
	}, func(i int, address uintptr) {
		C.gocm_set_function(C.int(i), C.uintptr_t(address))
	})
})

func (cLibrary) load() error {
	if err := loadLibrary(); err != nil {
		return fmt.Errorf("%w of the kernel: %w", verbs.ErrNoDevice, err)
	}
	return nil
}

func (cLibrary) open() (rawChannel, error) {
	var ch cChannel
	var fd C.int
	if err := errno(C.gocm_open(&ch.c, &fd)); err != nil {
		return nil, err
	}
	var err error
	if ch.file, err = eventfd.New(int(fd), "rdma_cm"); err != nil {
		ch.close()
		return nil, err
	}
	return ch, nil
}

func (ch cChannel) close() { C.gocm_close(ch.c) }

func (ch cChannel) wait(done func() bool) error { return ch.file.Wait(context.Background(), done) }

func (ch cChannel) stop() { _ = ch.file.Close() } // it ends the wait even if it returns an error

func (ch cChannel) next() (rawEvent, error) {
	var e C.struct_gocm_event
	if err := errno(C.gocm_next(ch.c, &e)); err != nil {
		return rawEvent{}, err
	}
	return rawEvent{
		event:              Event(e.event),
		status:             int(e.status),
		key:                uintptr(e.key),
		group:              uintptr(e.group),
		id:                 cID{e.id},
		responderResources: int(e.responder_resources),
		initiatorDepth:     int(e.initiator_depth),
		datagram: Datagram{AH: *(*verbs.AHAttr)(unsafe.Pointer(&e.ah)), QPN: uint32(e.qp_num),
			QKey: uint32(e.qkey)},
		data: C.GoBytes(unsafe.Pointer(&e.data), C.int(e.len)),
	}, nil
}

func (ch cChannel) create(key uintptr, ps PortSpace) (rawID, error) {
	var id cID
	if err := errno(C.gocm_create(ch.c, C.uintptr_t(key), C.int(ps), &id.c)); err != nil {
		return nil, err
	}
	return id, nil
}

func (id cID) setKey(key uintptr) { C.gocm_set_key(id.c, C.uintptr_t(key)) }

func (id cID) bind(a netip.AddrPort) error {
	c, err := cAddr(a)
	if err != nil {
		return err
	}
	return errno(C.gocm_bind(id.c, &c))
}

func (id cID) resolveAddr(from, to netip.AddrPort, limit time.Duration) error {
	var src C.struct_gocm_addr
	dst, err := cAddr(to)
	if err != nil {
		return err
	}
	if from.IsValid() {
		if src, err = cAddr(from); err != nil {
			return err
		}
	}
	return errno(C.gocm_resolve_addr(id.c, &src, &dst, C.int(limit.Milliseconds())))
}

func (id cID) resolveRoute(limit time.Duration) error {
	return errno(C.gocm_resolve_route(id.c, C.int(limit.Milliseconds())))
}

func (id cID) setTOS(tos uint8) error { return errno(C.gocm_set_tos(id.c, C.uint8_t(tos))) }

func (id cID) setAckTimeout(code uint8) error {
	return errno(C.gocm_set_ack_timeout(id.c, C.uint8_t(code)))
}

func (id cID) setReuseAddr() error { return errno(C.gocm_set_reuseaddr(id.c)) }

func (id cID) setAFOnly() error { return errno(C.gocm_set_afonly(id.c)) }

func (id cID) connect(p rawParam) error {
	c := p.c()
	return errno(C.gocm_connect(id.c, &c))
}

func (id cID) accept(p rawParam) error {
	c := p.c()
	return errno(C.gocm_accept(id.c, &c))
}

func (id cID) reject(data []byte) error {
	c := rawParam{data: data}.c()
	return errno(C.gocm_reject(id.c, &c))
}

func (id cID) establish() error         { return errno(C.gocm_establish(id.c)) }
func (id cID) listen(backlog int) error { return errno(C.gocm_listen(id.c, C.int(backlog))) }
func (id cID) disconnect() error        { return errno(C.gocm_disconnect(id.c)) }

func (id cID) destroy() error { return errno(C.gocm_destroy(id.c)) }

func (id cID) join(group netip.AddrPort, key uintptr) error {
	c, err := cAddr(group)
	if err != nil {
		return err
	}
	return errno(C.gocm_join(id.c, &c, C.uintptr_t(key)))
}

func (id cID) leave(group netip.AddrPort) error {
	c, err := cAddr(group)
	if err != nil {
		return err
	}
	return errno(C.gocm_leave(id.c, &c))
}

func (id cID) where() (p rawPlace) {
	var local, remote C.struct_gocm_addr
	var dev C.struct_gocm_device
	C.gocm_where(id.c, &local, &remote, &dev)
	return rawPlace{local: goAddr(&local), remote: goAddr(&remote), device: C.GoString(&dev.name[0]),
		port: int(dev.port)}
}

func (id cID) qpAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	var a C.struct_gocm_qp_attr
	var mask C.int
	if err := errno(C.gocm_qp_attr(id.c, C.int(to), &a, &mask)); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	return verbs.QPAttr{
		State:           to,
		PathMTU:         verbs.MTU(a.path_mtu),
		QKey:            uint32(a.qkey),
		RQPSN:           uint32(a.rq_psn),
		SQPSN:           uint32(a.sq_psn),
		DestQPNum:       uint32(a.dest_qp_num),
		AccessFlags:     verbs.AccessFlags(a.qp_access_flags),
		AH:              *(*verbs.AHAttr)(unsafe.Pointer(&a.ah)),
		PKeyIndex:       uint16(a.pkey_index),
		MaxRdAtomic:     int(a.max_rd_atomic),
		MaxDestRdAtomic: int(a.max_dest_rd_atomic),
		MinRNRTimer:     uint8(a.min_rnr_timer),
		PortNum:         uint8(a.port_num),
		Timeout:         uint8(a.timeout),
		RetryCnt:        uint8(a.retry_cnt),
		RNRRetry:        uint8(a.rnr_retry),
	}, verbs.QPAttrMask(mask) & qpAttrKnown, nil
}

// qpAttrKnown are the attributes that qpAttr converts. Kernels have set other bits by mistake.
const qpAttrKnown = verbs.QPAttrState | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | verbs.QPAttrPort |
	verbs.QPAttrQKey |
	verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
	verbs.QPAttrRQPSN | verbs.QPAttrMaxRdAtomic | verbs.QPAttrMinRNRTimer | verbs.QPAttrSQPSN |
	verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrDestQPN

func (p rawParam) c() C.struct_gocm_param {
	c := C.struct_gocm_param{
		qp_num:              C.uint32_t(p.qpn),
		responder_resources: C.uint8_t(p.responderResources),
		initiator_depth:     C.uint8_t(p.initiatorDepth),
		retry_count:         C.uint8_t(p.retryCount),
		rnr_retry_count:     C.uint8_t(p.rnrRetryCnt),
		len:                 C.uint8_t(len(p.data)),
	}
	if p.srq {
		c.srq = 1
	}
	for i, b := range p.data {
		c.data[i] = C.uint8_t(b)
	}
	return c
}

// cAddr converts an address. A zone is the name or the index of a network interface.
func cAddr(a netip.AddrPort) (c C.struct_gocm_addr, err error) {
	ip := a.Addr().Unmap()
	c.port = C.uint16_t(a.Port())
	if ip.Is4() {
		c.family = C.AF_INET
		for i, b := range ip.As4() {
			c.ip[i] = C.uint8_t(b)
		}
		return c, nil
	}
	c.family = C.AF_INET6
	for i, b := range ip.As16() {
		c.ip[i] = C.uint8_t(b)
	}
	scope, err := scopeOf(ip.Zone())
	c.scope = C.uint32_t(scope)
	return c, err
}

func goAddr(c *C.struct_gocm_addr) netip.AddrPort {
	var ip netip.Addr
	switch c.family {
	case C.AF_INET:
		ip = netip.AddrFrom4([4]byte{byte(c.ip[0]), byte(c.ip[1]), byte(c.ip[2]), byte(c.ip[3])})
	case C.AF_INET6:
		var b [16]byte
		for i := range b {
			b[i] = byte(c.ip[i])
		}
		ip = netip.AddrFrom16(b).Unmap()
		if c.scope != 0 && ip.Is6() {
			ip = ip.WithZone(zoneOf(int(c.scope)))
		}
	default:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(c.port))
}
