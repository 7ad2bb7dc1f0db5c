// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "encoding/binary"

// ImmediateLen is the length of the Immediate Data header, which is the data
// (RFC 7306 section 6.2).
const ImmediateLen = 8

// PutImmediate writes the 8 bytes of Immediate Data into b, most significant first. It panics if b is shorter.
func PutImmediate(b []byte, v uint64) { binary.BigEndian.PutUint64(b, v) }

// ParseImmediate reads what PutImmediate writes. It panics if b is shorter than ImmediateLen: the length of the message is
// the caller's to check, because it is an error of the protocol of its own (RFC 7306 section 6.3).
func ParseImmediate(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
