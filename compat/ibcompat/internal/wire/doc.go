// SPDX-License-Identifier: BSD-3-Clause

// Package wire encodes and decodes what two ibcompat devices exchange over iWARP. It knows nothing
// about queues or memory. Integers are in network byte order. There are three formats:
//
//   - the [Greeting], 8 bytes at the start of the connection manager's private data, by which each
//     side learns, before a connection exists, that the other speaks this protocol;
//   - the [Hello], the first message of each side, which states its capabilities and limits;
//   - messages: a 32-byte [Header], the [Advert]s it counts, and the payload of its kind.
//
// Decoding checks everything that can be checked without the state of the connection: versions,
// kinds, the flags each kind allows, counts and lengths. It returns a *[FormatError] that names the
// offending field and its value. No allocation is sized by a length from the peer. Encoding a
// decoded value yields the bytes it was decoded from.
package wire

import "fmt"

// FormatError describes a malformed field in received data.
type FormatError struct {
	Part  string // "greeting", "hello", "header", "advert", "atomic"
	Field string // "length" if Part is too short, otherwise the name of the field
	Value uint64
}

// Error names the part, the field and the value.
func (e *FormatError) Error() string {
	return fmt.Sprintf("ibcompat: %s: bad %s %#x", e.Part, e.Field, e.Value)
}

func bad(part, field string, v uint64) error { return &FormatError{part, field, v} }
