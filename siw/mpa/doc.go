// SPDX-License-Identifier: BSD-3-Clause

// Package mpa encodes and decodes what MPA (RFC 5044, RFC 6581) puts on a TCP
// stream: the Request and Reply frames of connection setup, the framing of
// FPDUs, their CRC, and markers.
//
// An FPDU is one DDP segment (the ULPDU) in its frame:
//
//	ULPDU_Length (2) | ULPDU | pad (0..3 zero bytes) | CRC (4)
//
// Multi-byte integers are big-endian except for the CRC, which is sent least
// significant byte first.
//
// The package knows bytes and io only. It keeps no state, starts nothing and
// holds no timer; who may send which frame when is the caller's business.
// Every function may be called from several goroutines at once.
package mpa
