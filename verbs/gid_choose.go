// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
)

// ChooseGID returns the row of a port's GID table to use as the source of packets to an address.
// Rows of InfiniBand and iWARP reach every address. Of the others it takes rows of the address's
// family, and of these, in this order:
//
//   - RoCE v2 before RoCE v1;
//   - the row of the source address that this host's routes give for the address; for an address of
//     this host it is that address;
//   - rows of the same scope: a link-local address reaches its link only;
//   - rows whose subnet, as it is configured on their network interface, has the address;
//   - rows of the network interface through which the route goes, then rows of any interface: a row
//     without one belongs to another network namespace;
//   - the row that has most leading bits in common with the address, and the first of those.
//
// If no row is of the family, it takes a RoCE v2 row of the interface through which the route goes:
// a peer whose name is an IPv4 address may have IPv6 GIDs only, as this host. For the zero Addr
// every family matches, addresses that are routed come before link-local ones, and IPv4 before
// IPv6. The error Is [ErrNoGID] if no row matches.
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

// hostRoute is what this host knows of the way to an address.
type hostRoute struct {
	source  netip.Addr                // of packets to the address; not valid if there is no route
	netDev  string                    // the network interface with that address, "" if it is not known
	subnets map[string][]netip.Prefix // of each network interface
}

// routeTo finds out the route to an address. Nothing is sent.
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

// chooseGID returns the best row; false if none matches.
func chooseGID(rows []GIDEntry, to netip.Addr, h hostRoute) (best GIDEntry, ok bool) {
	var most gidRank
	for _, e := range rows {
		if rank, fits := h.rank(e, to); fits && (!ok || slices.Compare(rank[:], most[:]) > 0) {
			best, most, ok = e, rank, true
		}
	}
	return best, ok
}

// gidRank ranks a row by the criteria of ChooseGID, the most important one first.
type gidRank [10]int

// rank ranks a row; false if it does not match.
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

// inCommon returns how many leading bits two addresses of one family have in common, 0 for others.
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
