// SPDX-License-Identifier: BSD-3-Clause

// Package ddp encodes and decodes the headers of DDP (RFC 5041).
//
// Every DDP segment begins with the DDP control byte. Its T bit, which IsTagged returns, determines
// which of the two headers follows; VersionOf returns its protocol version. The second byte of the
// header belongs to the layer above; it is the ULP field. All integers are big-endian.
//
// The package validates only lengths. The caller decides whether a version, queue, sequence number
// or STag is acceptable. The package also defines the error codes for a Terminate. All functions
// may be called concurrently.
package ddp
