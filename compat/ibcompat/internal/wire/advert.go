// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// Segment is a memory range that the peer may write to.
type Segment struct {
	Addr   uint64
	RKey   uint32
	Length uint32
}

// SegmentLen and AdvertLen are encoded lengths in bytes, AdvertLen without the segments.
const (
	SegmentLen = 16
	AdvertLen  = 8
)

// Advert announces a receive that the peer may fill:
//
//	0  total   4  segments   5  reserved, 0   8  segments: address 8, key 4, length 4
//
// Total is the sum of the segment lengths. An advert without segments announces only the length;
// the peer must not write into that receive.
type Advert struct {
	Total    uint32
	Segments []Segment
}

// Append appends the encoded advert to b.
func (a *Advert) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, a.Total)
	b = append(b, byte(len(a.Segments)), 0, 0, 0)
	for _, s := range a.Segments {
		b = binary.BigEndian.AppendUint64(b, s.Addr)
		b = binary.BigEndian.AppendUint32(b, s.RKey)
		b = binary.BigEndian.AppendUint32(b, s.Length)
	}
	return b
}

// ParseAdvert decodes an advert into a, reusing its Segments, and returns the bytes after it.
func ParseAdvert(b []byte, a *Advert) (rest []byte, err error) {
	if len(b) < AdvertLen {
		return nil, bad("advert", "length", uint64(len(b)))
	}
	n := int(b[4])
	a.Total, a.Segments = binary.BigEndian.Uint32(b), a.Segments[:0]
	switch {
	case n > MaxSGE:
		return nil, bad("advert", "segments", uint64(n))
	case b[5] != 0 || b[6] != 0 || b[7] != 0:
		return nil, bad("advert", "reserved", uint64(b[5])|uint64(b[6])|uint64(b[7]))
	}
	if b = b[AdvertLen:]; len(b) < n*SegmentLen {
		return nil, bad("advert", "length", uint64(len(b)))
	}
	var sum uint64
	for range n {
		s := Segment{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
		if s.Addr+uint64(s.Length) < s.Addr {
			return nil, bad("advert", "address", s.Addr)
		}
		sum += uint64(s.Length)
		a.Segments = append(a.Segments, s)
		b = b[SegmentLen:]
	}
	if n > 0 && sum != uint64(a.Total) {
		return nil, bad("advert", "total", uint64(a.Total))
	}
	return b, nil
}

// AtomicLen is the length of an AtomicRequest in bytes.
const AtomicLen = 48

// AtomicRequest is the payload of an Atomic. Both operations are the masked ones of RFC 7306
// section 5.1. A plain CmpSwap has all bits set in both masks, a plain FetchAdd none.
//
//	0   operation, 0 FetchAdd or 1 CmpSwap   1   reserved, 0        4   key      8   address
//	16  add or swap                          24  add or swap mask   32  compare  40  compare mask
type AtomicRequest struct {
	CmpSwap              bool
	RKey                 uint32
	Addr                 uint64
	Operand, Mask        uint64 // Add and AddMask, or Swap and SwapMask
	Compare, CompareMask uint64 // CmpSwap; otherwise 0
}

// Append appends the encoded request to b.
func (r *AtomicRequest) Append(b []byte) []byte {
	op := byte(0)
	if r.CmpSwap {
		op = 1
	}
	b = append(b, op, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, r.RKey)
	for _, v := range [...]uint64{r.Addr, r.Operand, r.Mask, r.Compare, r.CompareMask} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// ParseAtomic decodes the payload of an Atomic, which must have exactly this length.
func ParseAtomic(b []byte) (AtomicRequest, error) {
	if len(b) != AtomicLen {
		return AtomicRequest{}, bad("atomic", "length", uint64(len(b)))
	}
	at := func(off int) uint64 { return binary.BigEndian.Uint64(b[off:]) }
	r := AtomicRequest{CmpSwap: b[0] == 1, RKey: binary.BigEndian.Uint32(b[4:]), Addr: at(8), Operand: at(16),
		Mask: at(24), Compare: at(32), CompareMask: at(40)}
	switch {
	case b[0] > 1:
		return AtomicRequest{}, bad("atomic", "operation", uint64(b[0]))
	case b[1] != 0 || b[2] != 0 || b[3] != 0:
		return AtomicRequest{}, bad("atomic", "reserved", uint64(b[1])|uint64(b[2])|uint64(b[3]))
	case !r.CmpSwap && r.Compare|r.CompareMask != 0:
		return AtomicRequest{}, bad("atomic", "compare", r.Compare|r.CompareMask)
	}
	return r, nil
}
