// SPDX-License-Identifier: BSD-3-Clause

package wire

import (
	"encoding/binary"
	"errors"
)

// Sizes of private data, in bytes. Linux's siw carries 251 and InfiniBand 56; a program gets 48
// everywhere.
const (
	GreetingLen = 8
	MaxPrivate  = 48
)

// Version is the protocol version.
const Version = 2

const magic = 0x1b5a

// ErrNoGreeting reports private data that do not come from a device of this package.
var ErrNoGreeting = errors.New("ibcompat: the peer is not an ib: device")

// VersionError reports a peer that speaks another protocol version.
type VersionError struct{ Version uint8 }

// Error names both versions.
func (e *VersionError) Error() string {
	return "ibcompat: the peer speaks version " + digits(e.Version) + " of the protocol, not " + digits(Version)
}

func digits(v uint8) string {
	if v >= 10 {
		return digits(v/10) + digits(v%10)
	}
	return string('0' + rune(v))
}

// Greeting is the start of the private data:
//
//	0  magic 0x1b5a   2  version   3  flags   5  length of the program's data   6  reserved, 0
//
// Unknown flags and the reserved bytes are ignored. The program's data follow.
type Greeting struct {
	Flags   uint16
	Private []byte // at most MaxPrivate bytes
}

// Append appends the encoded greeting and the program's data to b. The caller has checked their
// length.
func (g *Greeting) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, magic)
	b = append(b, Version)
	b = binary.BigEndian.AppendUint16(b, g.Flags)
	b = append(b, byte(len(g.Private)), 0, 0)
	return append(b, g.Private...)
}

// ParseGreeting decodes private data; Private aliases b. Bytes after the program's data are
// ignored, because InfiniBand and some iWARP devices deliver more than was sent. The error Is
// ErrNoGreeting, or is a *VersionError or a *FormatError.
func ParseGreeting(b []byte) (Greeting, error) {
	switch {
	case len(b) < GreetingLen || binary.BigEndian.Uint16(b) != magic:
		return Greeting{}, ErrNoGreeting
	case b[2] != Version:
		return Greeting{}, &VersionError{b[2]}
	}
	n := int(b[5])
	if n > MaxPrivate || n > len(b)-GreetingLen {
		return Greeting{}, bad("greeting", "private length", uint64(n))
	}
	return Greeting{Flags: binary.BigEndian.Uint16(b[3:]), Private: b[GreetingLen:][:n]}, nil
}
