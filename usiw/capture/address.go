// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// endpoint is one end of the connections in the file. An endpoint with a synthetic address has a
// name and port 0; each of its connections gets a different port.
type endpoint struct {
	netip.AddrPort
	name string
}

// link identifies a connection by its two ends, the lower one first.
type link struct{ low, high netip.AddrPort }

func linkOf(a, b endpoint) link {
	if a.Compare(b.AddrPort) > 0 {
		a, b = b, a
	}
	return link{a.AddrPort, b.AddrPort}
}

// book assigns addresses to endpoints. Endpoints without a TCP address get synthetic ones.
type book struct{ names map[string]netip.AddrPort }

func (b *book) init() { b.names = make(map[string]netip.AddrPort) }

// madeUp is the prefix of the synthetic addresses, which is reserved for documentation (RFC 3849).
// They are numbered.
var madeUp = netip.MustParsePrefix("2001:db8::/32")

// The dynamic ports (RFC 6335), from which endpoints with synthetic addresses get their ports.
const (
	firstPort = 49152
	ports     = 1<<16 - firstPort
)

// shown returns the address in the file of one end of the n-th connection. Wireshark tells the two
// ends of an iWARP connection apart by their ports, and cannot tell apart two connections between
// the same ports.
func (e endpoint) shown(n uint32, end int) netip.AddrPort {
	if e.name == "" {
		return e.AddrPort
	}
	return netip.AddrPortFrom(e.Addr(), uint16(firstPort+(2*n+uint32(end))%ports))
}

// pair returns the addresses of both ends of a connection. They differ but have the same IP
// version, because one IP packet contains both.
func (b *book) pair(local, remote net.Addr) (l, r endpoint) {
	la, lok := tcpAddress(local)
	ra, rok := tcpAddress(remote)
	if lok && rok && la != ra && la.Addr().Is4() == ra.Addr().Is4() {
		return endpoint{AddrPort: la}, endpoint{AddrPort: ra}
	}
	ln, rn := name(local), name(remote)
	if ln == rn {
		ln, rn = ln+" here", rn+" there"
	}
	return b.named(ln), b.named(rn)
}

// tcpAddress returns the address of a TCP endpoint without its zone, which has only local meaning.
func tcpAddress(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp == nil {
		return netip.AddrPort{}, false
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), ap.Addr().IsValid()
}

// name returns the name of an endpoint.
func name(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); a == nil || ok && tcp == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s %s", a.Network(), a)
}

// named returns the synthetic address for a name.
func (b *book) named(name string) endpoint {
	ap, ok := b.names[name]
	if !ok {
		a := madeUp.Addr().As16()
		binary.BigEndian.PutUint64(a[8:], uint64(len(b.names)+1))
		ap = netip.AddrPortFrom(netip.AddrFrom16(a), 0)
		b.names[name] = ap
	}
	return endpoint{AddrPort: ap, name: name}
}
