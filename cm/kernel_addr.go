// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/verbs"
)

// kernelAddr is the address of one end of a connection on a kernel device. Like net.TCPAddr it has
// a method AddrPort.
type kernelAddr struct {
	at netip.AddrPort
	ps PortSpace
}

func (a kernelAddr) Network() string          { return "rdma-" + a.ps.String() }
func (a kernelAddr) String() string           { return a.at.String() }
func (a kernelAddr) AddrPort() netip.AddrPort { return a.at }
func (a kernelAddr) Addr() netip.Addr         { return a.at.Addr() }
func (a kernelAddr) Port() uint16             { return a.at.Port() }

// splitAddress splits "host:port" and checks the port.
func splitAddress(address string) (host string, port uint16, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(service)
	if err != nil {
		if n, err = net.LookupPort("tcp", service); err != nil {
			return "", 0, err
		}
	}
	if n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("%w: port %d in %q is not from 0 to 65535", verbs.ErrInvalid, n, address)
	}
	return host, uint16(n), nil
}

// lookup returns the addresses of a host, IPv4 first; if like is valid, only those of its family.
func lookup(ctx context.Context, host string, like netip.Addr) ([]netip.Addr, error) {
	all, err := net.DefaultResolver.LookupIPAddr(ctx, host) // LookupNetIP loses zones
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, v4 := range []bool{true, false} {
		for _, a := range all {
			ip, _ := netip.AddrFromSlice(a.IP)
			ip = ip.WithZone(a.Zone).Unmap()
			if ip.Is4() == v4 && (!like.IsValid() || like.Unmap().Is4() == v4) {
				ips = append(ips, ip)
			}
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("%w: %s has no address of the family of %v", verbs.ErrInvalid, host, like)
	}
	return ips, nil
}

// scopeOf returns the index of the network interface named by a zone.
func scopeOf(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// zoneOf is the inverse of scopeOf.
func zoneOf(scope int) string {
	if ifi, err := net.InterfaceByIndex(scope); err == nil {
		return ifi.Name
	}
	return strconv.Itoa(scope)
}
