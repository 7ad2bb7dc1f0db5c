// SPDX-License-Identifier: BSD-3-Clause

package mpa

// Specification constants of the FPDU.
const (
	// LengthLen is the length of the ULPDU_Length field, which counts only the ULPDU (RFC 5044
	// section 4.1).
	LengthLen = 2
	// CRCLen is the length of the CRC field, present even when CRCs are off (RFC 5044 section 4.1).
	CRCLen = 4
	// MaxULPDU is the largest ULPDU that ULPDU_Length can express (RFC 5044 section 3). Senders use
	// at most MaxMULPDU.
	MaxULPDU = 65535
	// MinMULPDU is the lower bound of MULPDU (RFC 5044 section 3).
	MinMULPDU = 128
	// MaxMULPDU is the upper bound of MULPDU (RFC 5044 section 3).
	MaxMULPDU = 64768
)

// Pad returns the number of pad bytes, 0 to 3, after a ULPDU of the given length (RFC 5044
// section 4.1).
func Pad(ulpdu int) int { return -(LengthLen + ulpdu) & 3 }

// FPDULen returns the length of an FPDU without markers whose ULPDU has the given length (RFC 5044
// section 4.1). It is a multiple of four.
func FPDULen(ulpdu int) int { return LengthLen + ulpdu + Pad(ulpdu) + CRCLen }

// MULPDU returns the largest ULPDU to send over a TCP connection with the given effective maximum
// segment size, with or without markers (RFC 5044 section 4.5). The result is at least MinMULPDU
// and at most MaxMULPDU.
func MULPDU(emss int, markers bool) int {
	n := emss - (LengthLen + CRCLen + emss%4)
	if markers {
		n -= MarkerLen * ((emss + MarkerSpacing - 1) / MarkerSpacing)
	}
	return min(max(n, MinMULPDU), MaxMULPDU)
}
