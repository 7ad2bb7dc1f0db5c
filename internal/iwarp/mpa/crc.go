// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is the table of CRC32C, the polynomial of MPA (RFC 5044 section 4.4).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC32C of earlier bytes, whose CRC is crc, followed by b (RFC 5044 section 4.4).
// The CRC of no bytes is 0.
func CRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// PutCRC stores crc in the first four bytes of b, least significant byte first (RFC 5044
// section 4.4, after iSCSI). It panics if b is shorter.
func PutCRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// GetCRC is the inverse of PutCRC.
func GetCRC(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
