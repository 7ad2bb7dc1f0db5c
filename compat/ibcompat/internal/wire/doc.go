// SPDX-License-Identifier: BSD-3-Clause

// Package wire is the codec of what two ibcompat devices say to each other over iWARP. It knows
// nothing of queues and memory. Numbers are in network byte order. Three things are sent:
//
//   - the [Greeting], 8 bytes at the start of the private data, by which either side finds out that
//     the other speaks this protocol, before a connection exists;
//   - the [Hello], the first message of each side, with what it can do and how much room it has;
//   - messages: a [Header] of 32 bytes, then the [Advert]s that it counts, then the payload of its
//     kind.
//
// Decoding checks everything that can be checked without knowing the connection: versions, kinds,
// flags that a kind has, counts, lengths. An error is a *[FormatError], which names the field and
// its value. Nothing is allocated by a length that the peer names. What a decoder returns encodes
// to the bytes that it was decoded from.
package wire

import "fmt"

// FormatError says what is wrong with something that was received.
type FormatError struct {
	Part  string // "greeting", "hello", "header", "advert", "atomic"
	Field string // "length" if it is too short, otherwise the field
	Value uint64
}

// Error names the part, the field and the value.
func (e *FormatError) Error() string {
	return fmt.Sprintf("ibcompat: %s: bad %s %#x", e.Part, e.Field, e.Value)
}

func bad(part, field string, v uint64) error { return &FormatError{part, field, v} }
