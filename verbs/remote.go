// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"encoding/binary"
	"fmt"
)

// Remote identifies memory of the peer: the target of a Write, a Read or an atomic. The peer
// obtains it from [MR.Remote] and sends it, for example in a message or as private data of the
// connection; this side decodes it with [ParseRemote].
//
// The peer can change the region's access rights or close the region without notice. A request that
// the region does not allow fails and ends the connection.
type Remote struct {
	Addr   uint64 // address of the first byte, as the peer registered it
	Length uint64 // bytes; longer requests are refused
	RKey   uint32 // the peer's key
}

// RemoteLen is the length of an encoded [Remote] in bytes.
const RemoteLen = 20

// Remote returns what a peer needs to access the region. What the peer may do depends on the
// region's access rights.
func (m *MR) Remote() Remote {
	return Remote{Addr: m.Addr(), Length: uint64(m.Len()), RKey: m.RKey()}
}

// Slice returns the n bytes at offset off. The error Is [ErrBounds] if they are not all inside r.
func (r Remote) Slice(off, n int) (Remote, error) {
	if off < 0 || n < 0 || uint64(off) > r.Length || uint64(n) > r.Length-uint64(off) {
		return Remote{}, opError("Remote.Slice", "",
			fmt.Errorf("%w: offset %d length %d of %d", ErrBounds, off, n, r.Length))
	}
	return Remote{Addr: r.Addr + uint64(off), Length: uint64(n), RKey: r.RKey}, nil
}

// Append appends RemoteLen bytes to b: address, length and key, most significant byte first.
func (r Remote) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.Addr)
	b = binary.BigEndian.AppendUint64(b, r.Length)
	return binary.BigEndian.AppendUint32(b, r.RKey)
}

// ParseRemote decodes the output of [Remote.Append] at the start of b. It ignores bytes after the
// first RemoteLen, because InfiniBand pads private data with zeros. The error Is [ErrInvalid] if b
// is shorter, or if address plus length overflows 64 bits.
func ParseRemote(b []byte) (Remote, error) {
	if len(b) < RemoteLen {
		return Remote{}, opError("ParseRemote", "", invalid("%d bytes, of %d", len(b), RemoteLen))
	}
	r := Remote{Addr: binary.BigEndian.Uint64(b), Length: binary.BigEndian.Uint64(b[8:]),
		RKey: binary.BigEndian.Uint32(b[16:])}
	if r.Addr+r.Length < r.Addr {
		return Remote{}, opError("ParseRemote", "",
			invalid("address %#x plus length %d wraps around", r.Addr, r.Length))
	}
	return r, nil
}

// String returns, for example, "4096 bytes at 0x7f5c3a000000, key 0x1a2b3c01".
func (r Remote) String() string {
	return fmt.Sprintf("%d bytes at %#x, key %#x", r.Length, r.Addr, r.RKey)
}
