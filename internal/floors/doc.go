// SPDX-License-Identifier: BSD-3-Clause

// Package floors holds the tests that keep the module's shape. It has no code of its own.
//
// Every package stands on a floor, and its code imports packages of lower floors only. Library
// packages depend on the standard library, golang.org/x/sys and golang.org/x/sync alone. C is
// called from named files only, unsafe stands in files whose names say so, and every source file
// carries its licence line.
//
// A new package needs a line in floorOf; CONTRIBUTING.md tells how to choose.
package floors
