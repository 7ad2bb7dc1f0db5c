// SPDX-License-Identifier: BSD-3-Clause

package rdmap

// Version is the value of the RV field (RFC 5040 section 4.1).
const Version = 1

// Fields of the RDMAP control byte (RFC 5040 section 4.1). The two bits between them are reserved:
// senders set them to zero, receivers ignore them.
const (
	controlVersionShift = 6
	controlOpcode       = 0x0F
)

// Control returns the RDMAP control byte of a message (RFC 5040 section 4.1).
func Control(op Opcode) byte {
	return Version<<controlVersionShift | byte(op)&controlOpcode
}

// ParseControl decodes the RDMAP control byte (RFC 5040 section 4.1).
func ParseControl(b byte) (version uint8, op Opcode) {
	return b >> controlVersionShift, Opcode(b & controlOpcode)
}
