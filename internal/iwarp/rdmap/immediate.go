// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "encoding/binary"

// ImmediateLen is the length of the Immediate Data header, which contains only the data (RFC 7306
// section 6.2).
const ImmediateLen = 8

// PutImmediate writes the 8 bytes of Immediate Data into b, most significant byte first. It panics
// if b is shorter.
func PutImmediate(b []byte, v uint64) { binary.BigEndian.PutUint64(b, v) }

// ParseImmediate is the inverse of PutImmediate. It panics if b is shorter than ImmediateLen: the
// caller checks the length of the message, because a wrong length is a separate protocol error
// (RFC 7306 section 6.3).
func ParseImmediate(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
