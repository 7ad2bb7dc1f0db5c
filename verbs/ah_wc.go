// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"encoding/binary"
	"fmt"
)

// GRHLen is the length in bytes of the Global Routing Header at the start of a received datagram.
const GRHLen = 40

// CreateAHFromWC creates an address handle for replying to a datagram (ibv_create_ah_from_wc(3)).
// wc is the completion of its receive; grh is the first [GRHLen] bytes of its memory, used only if
// wc.Flags has WCGRH. port is the local port, from 1. For a datagram to a multicast group, which
// does not name an address of this host, the error Is [ErrInvalid].
func (pd *PD) CreateAHFromWC(wc *WC, grh []byte, port int) (*AH, error) {
	attr, err := pd.ctx.AHAttrFromWC(wc, grh, port)
	if err != nil {
		return nil, opError("CreateAHFromWC", pd.ctx.dev.Name(), err)
	}
	ah, err := pd.CreateAH(attr)
	return ah, opError("CreateAHFromWC", pd.ctx.dev.Name(), err)
}

// AHAttrFromWC returns the path for replying to a datagram (ibv_init_ah_from_wc(3)); see
// [PD.CreateAHFromWC].
func (c *Context) AHAttrFromWC(wc *WC, grh []byte, port int) (AHAttr, error) {
	if err := c.enter("AHAttrFromWC"); err != nil {
		return AHAttr{}, err
	}
	defer c.node.Exit()
	attr, err := c.ahAttrFromWC(wc, grh, port)
	return attr, opError("AHAttrFromWC", c.dev.Name(), err)
}

func (c *Context) ahAttrFromWC(wc *WC, grh []byte, port int) (AHAttr, error) {
	switch {
	case c.node.Closed():
		return AHAttr{}, ErrClosed
	case wc == nil:
		return AHAttr{}, invalid("no completion")
	case wc.Status != WCSuccess || !wc.IsRecv():
		return AHAttr{}, invalid("the completion is not of a datagram that has arrived: %v, %v", wc.Opcode, wc.Status)
	}
	if err := c.checkPort(port); err != nil {
		return AHAttr{}, err
	}
	attr := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.DLIDPathBits, PortNum: uint8(port)}
	if wc.Flags&WCGRH == 0 {
		return attr, nil
	}
	if len(grh) < GRHLen {
		return AHAttr{}, invalid("%d bytes of the Global Routing Header, which has %d", len(grh), GRHLen)
	}
	h, err := parseGRH(grh)
	if err != nil {
		return AHAttr{}, err
	}
	index, err := c.indexOfGID(port, h.to, h.v2)
	if err != nil {
		return AHAttr{}, err
	}
	attr.IsGlobal = true
	attr.GRH = GlobalRoute{DGID: h.from, FlowLabel: h.flow, SGIDIndex: index, HopLimit: h.hops, TrafficClass: h.class}
	return attr, nil
}

// grh holds the fields of a Global Routing Header that a reply needs.
type grh struct {
	from, to    GID
	flow        uint32
	hops, class uint8
	v2          bool // RoCE v2
}

const (
	ipv4At    = 20   // offset of the 20-byte IP header of a RoCE v2 datagram over IPv4
	nextUDP   = 17   // the next header of RoCE v2
	nextIBGRH = 0x1b // the next header of InfiniBand and RoCE v1
)

// parseGRH parses a Global Routing Header (InfiniBand Architecture volume 1, 8.3), or the IP header
// that takes its place in RoCE v2 (ibid., annex A17.4.5.2).
func parseGRH(b []byte) (grh, error) {
	word := binary.BigEndian.Uint32(b)
	ip4 := b[ipv4At:GRHLen]
	h := grh{flow: word & 0xfffff}
	switch {
	case word>>28 != 6 && ip4[0]>>4 != 4:
		return grh{}, invalid("the Global Routing Header has the IP versions %d and %d", word>>28, ip4[0]>>4)
	case word>>28 != 6 || isIPv4(ip4):
		// The bytes before an IPv4 header are undefined.
		h.from, h.to = gidOf4(ip4[12:16]), gidOf4(ip4[16:20])
		h.hops, h.class, h.v2 = ip4[8], ip4[1], true
		if ip4[16]>>4 == 0xe {
			return grh{}, toGroup(h.to)
		}
		return h, nil
	}
	copy(h.from[:], b[8:24])
	copy(h.to[:], b[24:40])
	h.hops, h.class = b[7], uint8(word>>20)
	switch next := b[6]; next {
	case nextUDP:
		h.v2 = true
	case nextIBGRH:
	default:
		return grh{}, invalid("the Global Routing Header has the next header %#x", next)
	}
	if h.to[0] == 0xff {
		return grh{}, toGroup(h.to)
	}
	return h, nil
}

func toGroup(g GID) error { return invalid("the datagram was sent to the group %v", g.Addr()) }

// isIPv4 distinguishes an IPv4 header without options from the end of a Global Routing Header by
// its checksum (RFC 791 section 3.1).
func isIPv4(b []byte) bool {
	if b[0] != 4<<4|5 {
		return false
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return uint16(sum>>16+sum&0xffff) == 0xffff
}

// gidOf4 returns an IPv4 address as an IPv4-mapped GID.
func gidOf4(b []byte) GID {
	g := GID{10: 0xff, 11: 0xff}
	copy(g[12:], b)
	return g
}

// indexOfGID returns the index of a GID in a port's table, among the RoCE v2 entries if v2 and the
// others if not.
func (c *Context) indexOfGID(port int, gid GID, v2 bool) (uint8, error) {
	entries, err := c.GIDs(port)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.GID == gid && (e.Type == GIDTypeRoCEv2) == v2 && e.Index <= 0xff {
			return uint8(e.Index), nil
		}
	}
	return 0, fmt.Errorf("%w: port %d has no %v, to which the datagram was sent", ErrNoGID, port, gid)
}
