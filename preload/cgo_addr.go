// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include <sys/socket.h>
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"net"
	"net/netip"
	"strconv"
)

// fromC converts an address from the program. No address becomes the zero AddrPort.
func fromC(a *C.struct_rnic_addr) netip.AddrPort {
	var ip netip.Addr
	var b [16]byte
	for i := range b {
		b[i] = byte(a.ip[i])
	}
	switch a.family {
	case C.AF_INET:
		ip = netip.AddrFrom4([4]byte(b[:4]))
	case C.AF_INET6:
		ip = netip.AddrFrom16(b)
		if a.scope != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(a.scope), 10))
		}
	default:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(a.port))
}

// toC converts an address for the program. An address other than IP becomes no address.
func toC(addr net.Addr, to *C.struct_rnic_addr) {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return
	}
	ip := ap.Addr().Unmap()
	to.port = C.uint16_t(ap.Port())
	if ip.Is4() {
		to.family = C.AF_INET
		for i, b := range ip.As4() {
			to.ip[i] = C.uint8_t(b)
		}
		return
	}
	to.family = C.AF_INET6
	for i, b := range ip.As16() {
		to.ip[i] = C.uint8_t(b)
	}
	if zone := ip.Zone(); zone != "" {
		if n, err := net.InterfaceByName(zone); err == nil {
			to.scope = C.uint32_t(n.Index)
		} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			to.scope = C.uint32_t(n)
		}
	}
}
