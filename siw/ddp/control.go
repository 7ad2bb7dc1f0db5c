// SPDX-License-Identifier: BSD-3-Clause

package ddp

// Version is the value of the DV field (RFC 5041 section 4.1).
const Version = 1

// Bits of the DDP control byte (RFC 5041 section 4.1). The rest is reserved:
// zero when sent, not checked when received.
const (
	controlTagged  = 0x80
	controlLast    = 0x40
	controlVersion = 0x03
)

// IsTagged tells, from the DDP control byte, whether a tagged header follows
// (RFC 5041 section 4.1).
func IsTagged(control byte) bool { return control&controlTagged != 0 }

// VersionOf returns the DV field of the DDP control byte
// (RFC 5041 section 4.1).
func VersionOf(control byte) uint8 { return control & controlVersion }
