// SPDX-License-Identifier: BSD-3-Clause

// Package ddp encodes and decodes the headers of DDP (RFC 5041).
//
// Every DDP segment begins with the DDP control byte. Its T bit, which IsTagged
// returns, tells which of the two headers it begins; VersionOf returns the
// protocol version in it. The second byte of the header belongs to the layer
// above and is the field ULP. All integers are big-endian.
//
// The package checks only lengths. The caller decides whether a version, a
// queue, a sequence number or an STag is acceptable. The error codes for a
// Terminate are defined here. All functions may be called concurrently.
package ddp
