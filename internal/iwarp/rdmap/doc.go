// SPDX-License-Identifier: BSD-3-Clause

// Package rdmap encodes and decodes the control byte and the headers of RDMAP (RFC 5040) and of its
// extensions for atomics and immediate data (RFC 7306), and implements the arithmetic of the
// atomics.
//
// The control byte is the second byte of every DDP segment. Writes, Read Responses and Sends have
// no other RDMAP header; in all other messages, one of these headers follows the untagged DDP
// header. All integers are big-endian.
//
// The package validates only lengths. The caller decides which opcodes are allowed when, and which
// memory a request may access. The package also defines the error codes, and the Terminate message
// that carries them. All functions may be called concurrently.
package rdmap
