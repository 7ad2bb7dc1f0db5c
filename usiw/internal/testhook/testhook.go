// SPDX-License-Identifier: BSD-3-Clause

// Package testhook lets package usiwtest inject faults into a NIC that would otherwise occur only
// by chance.
package testhook

import "github.com/goverbs/goverbs/internal/iwarp/rdmap"

// Hooks are functions that a NIC calls unless they are nil.
type Hooks struct {
	// Build is called when a message is about to be built. If it returns an error, the message
	// cannot be built, as if memory had been lost.
	Build func(op rdmap.Opcode) error
}
