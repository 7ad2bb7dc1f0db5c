// SPDX-License-Identifier: BSD-3-Clause

// Package testhook lets package usiwtest make things go wrong inside a NIC that go wrong only by
// chance otherwise.
package testhook

import "github.com/goverbs/goverbs/internal/iwarp/rdmap"

// Hooks are called by a NIC; nil functions are not.
type Hooks struct {
	// Build is called when a message is about to be built. An error makes the building fail, as if
	// memory had been lost.
	Build func(op rdmap.Opcode) error
}
