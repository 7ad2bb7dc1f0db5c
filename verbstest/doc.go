// SPDX-License-Identifier: BSD-3-Clause

// Package verbstest is the conformance suite of the handles: one suite for every provider. It knows
// packages verbs, cm and ext only, and finds out by asking the device what a fabric can do: an
// operation that the device does not have must be refused, and where InfiniBand and iWARP differ by
// nature, each has an assertion of its own.
//
// A provider runs it in a test of its own:
//
//	func TestVerbs(t *testing.T) {
//		verbstest.Run(t, func(t *testing.T) verbstest.Fabric {
//			return verbstest.Fabric{Active: dev, Passive: dev, Listen: "127.0.0.1:0"}
//		})
//	}
//
// The tests are named SUBJECT/TEST, for example Send/Inline; the names are stable, so that results
// can be kept in a table of tests and devices. Every wait in the suite has a limit.
package verbstest
