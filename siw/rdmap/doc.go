// SPDX-License-Identifier: BSD-3-Clause

// Package rdmap encodes and decodes the control byte and the headers of RDMAP
// (RFC 5040) and of its extensions for atomics and immediate data (RFC 7306),
// and does the arithmetic of the atomics.
//
// The control byte is the second byte of every DDP segment. A Write, a Read
// Response and the Sends have no header beyond it; the headers here follow the
// untagged DDP header of the other messages. All integers are big-endian.
//
// The package checks lengths only; which opcode may come when, and what a
// request may touch, is for the engine to say. The codes of its answer are here,
// and the Terminate message that carries them. Every function may be called from
// several goroutines at once.
package rdmap
