// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
)

// ChooseGID returns the entry of a port's GID table to use as the source for packets to an address.
// InfiniBand and iWARP entries reach every address. Among RoCE entries of the address's family, the
// criteria are, in order of precedence:
//
//   - RoCE v2 over RoCE v1;
//   - the source address that this host's routing selects for the address (for an address of this
//     host, that address itself);
//   - the same scope, because a link-local address reaches only its link;
//   - a subnet, as configured on the entry's network interface, that contains the address;
//   - the network interface of the route, then any interface: an entry without one belongs to
//     another network namespace;
//   - the longest common prefix with the address; of equals, the first entry.
//
// If no entry has the address's family, ChooseGID takes a RoCE v2 entry of the route's interface: a
// peer known by an IPv4 address may, like this host, have only IPv6 GIDs. For the zero Addr every
// family matches; routable addresses precede link-local ones, and IPv4 precedes IPv6. The error Is
// [ErrNoGID] if no entry matches.
func (c *Context) ChooseGID(port int, to netip.Addr) (GIDEntry, error) {
	rows, err := c.GIDs(port)
	if err != nil {
		return GIDEntry{}, err
	}
	var host hostRoute
	if slices.ContainsFunc(rows, func(e GIDEntry) bool { return e.Type != GIDTypeIB }) {
		host = routeTo(to)
	}
	best, ok := chooseGID(rows, to.Unmap(), host)
	if !ok {
		err = fmt.Errorf("%w: none of the %d on port %d reaches %v", ErrNoGID, len(rows), port, to)
		return GIDEntry{}, opError("ChooseGID", c.dev.Name(), err)
	}
	return best, nil
}

// hostRoute describes this host's route to an address.
type hostRoute struct {
	source  netip.Addr                // source of packets to the address; invalid if there is no route
	netDev  string                    // the network interface with that address, "" if unknown
	subnets map[string][]netip.Prefix // of each network interface
}

// routeTo determines the route to an address without sending a packet.
func routeTo(to netip.Addr) hostRoute {
	h := hostRoute{subnets: make(map[string][]netip.Prefix)}
	if to.IsValid() && !to.IsUnspecified() {
		if c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9))); err == nil {
			h.source = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
			_ = c.Close()
		}
	}
	h.netDev = to.Zone()
	interfaces, _ := net.Interfaces()
	for i := range interfaces {
		addrs, _ := interfaces[i].Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			own, _ := netip.AddrFromSlice(n.IP)
			own = own.Unmap()
			if ones, size := n.Mask.Size(); size == own.BitLen() {
				h.subnets[interfaces[i].Name] = append(h.subnets[interfaces[i].Name], netip.PrefixFrom(own, ones))
			}
			if h.netDev == "" && own == h.source.WithZone("") {
				h.netDev = interfaces[i].Name
			}
		}
	}
	return h
}

// chooseGID returns the best entry, or false if none matches.
func chooseGID(rows []GIDEntry, to netip.Addr, h hostRoute) (best GIDEntry, ok bool) {
	var most gidRank
	for _, e := range rows {
		if rank, fits := h.rank(e, to); fits && (!ok || slices.Compare(rank[:], most[:]) > 0) {
			best, most, ok = e, rank, true
		}
	}
	return best, ok
}

// gidRank holds an entry's score for each criterion of ChooseGID, most important first.
type gidRank [10]int

// rank scores an entry, or reports false if it does not match.
func (h hostRoute) rank(e GIDEntry, to netip.Addr) (r gidRank, fits bool) {
	own, there := e.GID.Addr(), to.WithZone("")
	onRoute := e.NetDev != "" && e.NetDev == h.netDev
	if e.Type == GIDTypeIB {
		return r, true
	}
	family := !to.IsValid() || own.Is4() == to.Is4()
	if !family && !(e.Type == GIDTypeRoCEv2 && onRoute) {
		return r, false
	}
	yes := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return gidRank{
		yes(family),
		yes(e.Type == GIDTypeRoCEv2),
		yes(e.Type == GIDTypeRoCEv1),
		yes(own == h.source.WithZone("")),
		yes(own.IsLinkLocalUnicast() == to.IsLinkLocalUnicast()), // the zero Addr is not link-local
		yes(!to.IsValid() && own.Is4()),
		yes(slices.ContainsFunc(h.subnets[e.NetDev],
			func(p netip.Prefix) bool { return p.Addr() == own && p.Contains(there) })),
		yes(onRoute),
		yes(e.NetDev != ""),
		inCommon(own, there),
	}, true
}

// inCommon returns the length in bits of the common prefix of two addresses, 0 if their families
// differ.
func inCommon(a, b netip.Addr) int {
	if a.BitLen() != b.BitLen() {
		return 0
	}
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return 8*i + bits.LeadingZeros8(d)
		}
	}
	return a.BitLen()
}
