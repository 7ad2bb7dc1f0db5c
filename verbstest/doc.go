// SPDX-License-Identifier: BSD-3-Clause

// Package verbstest is the conformance suite for the handles of package verbs, shared by all
// providers. It uses only the packages verbs, cm and ext, and asks the device what a fabric
// supports. Operations that the device lacks must be refused. Where InfiniBand and iWARP differ by
// design, each has its own assertion.
//
// A provider runs it in one of its tests:
//
//	func TestVerbs(t *testing.T) {
//		verbstest.Run(t, func(t *testing.T) verbstest.Fabric {
//			return verbstest.Fabric{Active: dev, Passive: dev, Listen: "127.0.0.1:0"}
//		})
//	}
//
// Tests are named SUBJECT/TEST, for example Send/Inline. The names are stable, so that results can
// be kept in a table of tests and devices. Every wait in the suite has a limit.
package verbstest
