// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/netdev"
	"github.com/goverbs/goverbs/verbs"
)

// gids is the GID table of a device, laid out as for RoCE: one entry for each IP address of the
// device. An entry keeps its index as long as the address exists. Then it is empty and may be
// reused.
type gids struct {
	mu   sync.Mutex
	rows []netdev.Address // at most mostRows
	err  error            // why the addresses are unknown
}

// mostRows is how many entries sgid_index (8 bits) can address.
const mostRows = 256

// defaultPKey is the partition key of a device without partitions.
const defaultPKey = 0xffff

// addresses returns the addresses of a device. The error Is verbs.ErrNotSupported if it has none.
func addresses(in *verbs.Context) ([]netdev.Address, error) {
	if _, kernel := verbs.Ability[verbs.ProviderKernelDevice](in.Device().Provider()); kernel {
		return kernelAddresses(in)
	}
	at, err := hostOf(in)
	if err != nil {
		return nil, err
	}
	all, err := netdev.All()
	if err != nil || !at.IsValid() {
		return all, err
	}
	one := netdev.Address{IP: at.Unmap().WithZone("")}
	for _, a := range all {
		if a.IP == one.IP || a.IP.IsLoopback() && one.IP.IsLoopback() && one.NetDev == "" {
			one.NetDev = a.NetDev // an interface lists only one address of 127.0.0.0/8
		}
	}
	return []netdev.Address{one}, nil
}

// hostOf returns the single address of a device, or the zero Addr if it may have several. The error
// Is verbs.ErrNotSupported if it has none.
func hostOf(in *verbs.Context) (at netip.Addr, err error) {
	dev := in.Device()
	if _, kernel := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider()); kernel {
		return at, nil
	}
	if host, ok := verbs.Ability[cm.ProviderAddresser](dev.Provider()); ok {
		if at, ok = host.HostAddr(); ok {
			return at, nil
		}
	}
	return at, fmt.Errorf("%w: GIDs: %s has no address of this host", verbs.ErrNotSupported, dev.Name())
}

// kernelAddresses returns the addresses of the network interfaces behind a kernel device.
func kernelAddresses(in *verbs.Context) ([]netdev.Address, error) {
	attr, err := in.QueryDevice()
	if err != nil {
		return nil, err
	}
	var all []netdev.Address
	var seen []string
	for port := 1; port <= attr.PhysPortCnt; port++ {
		rows, err := in.GIDs(port)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			name := netdev.OfGID(in.Device().Info().Transport, row)
			if name == "" || slices.Contains(seen, name) {
				continue
			}
			seen = append(seen, name)
			for _, ip := range netdev.Addresses(name) {
				all = append(all, netdev.Address{IP: ip, NetDev: name})
			}
		}
	}
	return all, nil
}

// order ranks an address for a new table: addresses reachable from other hosts come first.
func order(a netdev.Address) int {
	rank := 0
	switch {
	case a.IP.IsLoopback():
		rank = 4
	case a.IP.IsLinkLocalUnicast():
		rank = 2
	}
	if !a.IP.Is4() {
		rank++
	}
	return rank
}

// refresh updates the table and returns its length, at least 1.
func (g *gids) refresh(in *verbs.Context) int {
	now, err := addresses(in)
	slices.SortStableFunc(now, func(a, b netdev.Address) int { return cmp.Compare(order(a), order(b)) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err = err; err != nil {
		return max(1, len(g.rows))
	}
	for i := range g.rows {
		if !slices.Contains(now, g.rows[i]) {
			g.rows[i] = netdev.Address{}
		}
	}
	for _, a := range now {
		if slices.Contains(g.rows, a) {
			continue
		}
		if i := slices.Index(g.rows, netdev.Address{}); i >= 0 {
			g.rows[i] = a
		} else if len(g.rows) < mostRows {
			g.rows = append(g.rows, a)
		}
	}
	return max(1, len(g.rows))
}

// row returns a non-empty entry.
func (g *gids) row(index int) (netdev.Address, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return netdev.Address{}, g.err
	case index >= len(g.rows) || !g.rows[index].IP.IsValid():
		return netdev.Address{}, fmt.Errorf("%w: index %d is empty", verbs.ErrNoGID, index)
	}
	return g.rows[index], nil
}

// QueryPort returns the attributes of the inner port with the length of the GID table. Programs
// query it before the table, so it refreshes the table.
func (c *vcontext) QueryPort(port int) (verbs.PortAttr, error) {
	a, err := c.in.QueryPort(port)
	if err == nil {
		a.GIDTblLen, a.PKeyTblLen = c.dev.gids.refresh(c.in), 1
	}
	return a, err
}

// QueryGID implements verbs.ProviderGIDTable.
func (c *vcontext) QueryGID(port, index int) (verbs.GIDEntry, error) {
	row, err := c.dev.gids.row(index)
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	return verbs.GIDEntry{GID: verbs.GIDFromAddr(row.IP), Port: port, Index: index, Type: verbs.GIDTypeRoCEv2,
		NetDev: row.NetDev}, nil
}

// QueryPKey implements verbs.ProviderGIDTable.
func (c *vcontext) QueryPKey(int, int) (uint16, error) {
	_, err := addresses(c.in)
	return defaultPKey, err
}

// zoned returns the address with its IPv6 zone, if it is link-local.
func zoned(a netdev.Address) netip.Addr {
	if a.IP.IsLinkLocalUnicast() && a.IP.Is6() {
		return a.IP.WithZone(a.NetDev)
	}
	return a.IP
}
