// SPDX-License-Identifier: BSD-3-Clause

package ddp

// Version is the value of the DV field (RFC 5041 section 4.1).
const Version = 1

// Bits of the DDP control byte (RFC 5041 section 4.1). The others are reserved: senders set them to
// zero, receivers ignore them.
const (
	controlTagged  = 0x80
	controlLast    = 0x40
	controlVersion = 0x03
)

// IsTagged reports whether the DDP control byte begins a tagged header (RFC 5041 section 4.1).
func IsTagged(control byte) bool { return control&controlTagged != 0 }

// VersionOf returns the DV field of the DDP control byte (RFC 5041 section 4.1).
func VersionOf(control byte) uint8 { return control & controlVersion }
