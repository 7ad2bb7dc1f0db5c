// SPDX-License-Identifier: BSD-3-Clause

// Package ddp encodes and decodes the headers of DDP (RFC 5041).
//
// Every DDP segment begins with the DDP control byte, whose T bit tells which
// of the two headers it opens: IsTagged looks at it, VersionOf at the protocol
// version. The header's second byte belongs to the layer above and is carried
// as ULP. All integers are big-endian.
//
// The package checks lengths only. Whether a version, a queue, a sequence number
// or an STag is acceptable is for the engine to say; the codes for its answer
// are here, too. Every function may be called from several goroutines at once.
package ddp
