// SPDX-License-Identifier: BSD-3-Clause

package mpa

// Error codes of MPA, which a Terminate carries under layer 2, type 0.
const (
	// ErrCodeClosed: TCP connection closed, terminated or lost (RFC 5044 section 8).
	ErrCodeClosed = 1
	// ErrCodeCRC: the CRC of an FPDU does not match (RFC 5044 section 8).
	ErrCodeCRC = 2
	// ErrCodeMarker: marker and ULPDU_Length disagree about the start of an FPDU (RFC 5044
	// section 8).
	ErrCodeMarker = 3
	// ErrCodeFrame: invalid Request or Reply frame (RFC 5044 section 8).
	ErrCodeFrame = 4
	// ErrCodeLocal: local catastrophic error during setup (RFC 6581 section 8).
	ErrCodeLocal = 5
	// ErrCodeIRD: insufficient IRD resources (RFC 6581 section 8).
	ErrCodeIRD = 6
	// ErrCodeRTR: no matching RTR option (RFC 6581 section 8).
	ErrCodeRTR = 7
)
