// SPDX-License-Identifier: BSD-3-Clause

// Package netdev finds the network interfaces below RDMA devices, and their addresses.
package netdev

import (
	"bytes"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// OfGID returns the name of the network interface that a GID table entry belongs to, or "" if this
// host has none. Where the kernel does not name the interface of an iWARP device, it is found by
// the MAC address with which the GID begins.
func OfGID(transport verbs.Transport, g verbs.GIDEntry) string {
	if g.NetDev != "" || transport != verbs.TransportIWARP {
		return g.NetDev
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		if n := len(i.HardwareAddr); n > 0 && bytes.Equal(i.HardwareAddr, g.GID[:n]) {
			return i.Name
		}
	}
	return ""
}

// Addresses returns the IP addresses of an interface, or none if the interface does not exist.
// Link-local addresses have no zone.
func Addresses(name string) []netip.Addr {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	return addresses(i)
}

func addresses(i *net.Interface) []netip.Addr {
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, p.Addr().Unmap())
		}
	}
	return ips
}

// Address is an IP address of an interface.
type Address struct {
	IP     netip.Addr // without a zone
	NetDev string
}

// All returns the addresses of all interfaces that are up.
func All() ([]Address, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []Address
	for i := range interfaces {
		if interfaces[i].Flags&net.FlagUp == 0 {
			continue
		}
		for _, ip := range addresses(&interfaces[i]) {
			all = append(all, Address{ip, interfaces[i].Name})
		}
	}
	return all, nil
}
