// SPDX-License-Identifier: BSD-3-Clause

// Package mpa encodes and decodes the MPA parts of a TCP stream (RFC 5044, RFC 6581): the Request
// and Reply frames of connection set-up, the framing of FPDUs, their CRC, and markers.
//
// An FPDU is one framed DDP segment (the ULPDU):
//
//	ULPDU_Length (2) | ULPDU | pad (0..3 zero bytes) | CRC (4)
//
// Multi-byte integers are big-endian except for the CRC, which is sent least significant byte
// first.
//
// The package works only on bytes and io.Readers. It has no state, goroutines or timers. The caller
// decides which side may send which frame when. All functions may be called concurrently.
package mpa
