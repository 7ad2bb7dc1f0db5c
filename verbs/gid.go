// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrNoGID: the GID table has no entry at this index, or none that matches.
var ErrNoGID = errors.New("no such GID")

// GID is a global identifier in network byte order: subnet prefix and port GUID on InfiniBand, an
// IP address on RoCE, a MAC address followed by zeros on iWARP.
type GID [16]byte

// GIDFromAddr returns the GID of an IP address. An IPv4 address becomes an IPv4-mapped IPv6
// address.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// Addr returns the GID as an IP address. An IPv4-mapped IPv6 address becomes the IPv4 address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether all bytes are 0, as in an empty table entry.
func (g GID) IsZero() bool { return g == GID{} }

// String formats the GID as an expanded IPv6 address, as sysfs does.
func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// MarshalText implements encoding.TextMarshaler, using String.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts any form of IPv6 address without a
// zone.
func (g *GID) UnmarshalText(text []byte) error {
	a, err := netip.ParseAddr(string(text))
	if err != nil || !a.Is6() || a.Zone() != "" {
		return invalid("GID %q", text)
	}
	*g = a.As16()
	return nil
}

// GIDType is the protocol of a GID.
type GIDType uint8

const (
	GIDTypeIB     GIDType = iota // IBV_GID_TYPE_IB: InfiniBand, and what iWARP devices report
	GIDTypeRoCEv1                // IBV_GID_TYPE_ROCE_V1: over Ethernet
	GIDTypeRoCEv2                // IBV_GID_TYPE_ROCE_V2: over UDP
)

// String returns the name that ibv_devinfo shows.
func (t GIDType) String() string {
	return enumText(int(t), []string{"IB", "RoCE v1", "RoCE v2"}, "GIDType")
}

// GIDEntry is an entry of a port's GID table (struct ibv_gid_entry).
type GIDEntry struct {
	GID    GID
	Port   int
	Index  int
	Type   GIDType
	NetDev string // the network interface, or ""
}

// QueryGID returns an entry of a port's GID table (ibv_query_gid_ex(3)). The error Is [ErrNoGID] if
// the entry is empty or index is out of range.
func (c *Context) QueryGID(port, index int) (GIDEntry, error) {
	const op = "QueryGID"
	if err := c.enter(op); err != nil {
		return GIDEntry{}, err
	}
	defer c.node.Exit()
	t, attr, err := c.gidTable(port)
	if err != nil {
		return GIDEntry{}, opError(op, c.dev.Name(), err)
	}
	if index < 0 || index >= attr.GIDTblLen {
		return GIDEntry{}, opError(op, c.dev.Name(), fmt.Errorf("%w: index %d of %d", ErrNoGID, index, attr.GIDTblLen))
	}
	e, err := t.QueryGID(port, index)
	return e, opError(op, c.dev.Name(), err)
}

func (c *Context) gidTable(port int) (ProviderGIDTable, PortAttr, error) {
	t, ok := Ability[ProviderGIDTable](c.p)
	if !ok {
		return nil, PortAttr{}, fmt.Errorf("%w: the device has no GID table", ErrNotSupported)
	}
	if err := c.checkPort(port); err != nil {
		return nil, PortAttr{}, err
	}
	attr, err := c.p.QueryPort(port)
	return t, attr, err
}

// GIDs returns the non-empty entries of a port's GID table (ibv_query_gid_table(3)).
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	const op = "GIDs"
	if err := c.enter(op); err != nil {
		return nil, err
	}
	defer c.node.Exit()
	t, attr, err := c.gidTable(port)
	if err != nil {
		return nil, opError(op, c.dev.Name(), err)
	}
	var entries []GIDEntry
	for i := range attr.GIDTblLen {
		switch e, err := t.QueryGID(port, i); {
		case err == nil:
			entries = append(entries, e)
		case !errors.Is(err, ErrNoGID):
			return nil, opError(op, c.dev.Name(), err)
		}
	}
	return entries, nil
}

// QueryPKey returns a partition key of a port, in host byte order (ibv_query_pkey(3)).
func (c *Context) QueryPKey(port, index int) (uint16, error) {
	const op = "QueryPKey"
	if err := c.enter(op); err != nil {
		return 0, err
	}
	defer c.node.Exit()
	t, attr, err := c.gidTable(port)
	switch {
	case err != nil:
		return 0, opError(op, c.dev.Name(), err)
	case index < 0 || index >= attr.PKeyTblLen:
		return 0, opError(op, c.dev.Name(), invalid("partition key index %d of %d", index, attr.PKeyTblLen))
	}
	key, err := t.QueryPKey(port, index)
	return key, opError(op, c.dev.Name(), err)
}
