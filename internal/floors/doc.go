// SPDX-License-Identifier: BSD-3-Clause

// Package floors holds the tests that keep the module's shape. It has no code of its own.
//
// A package's floor is one above the highest floor that it imports; docs/architecture.md has the
// drawing, which go generate makes from the imports and TestDrawing compares. What the floors alone
// do not say stands in a few rules: which packages must not depend on which (apart), what only
// tests may import (forTests), and what may depend on other modules (free). Library packages depend
// on the standard library, golang.org/x/sys and golang.org/x/sync alone. C is called from named
// files only, unsafe stands in files whose names say so, and every source file carries its licence
// line.
package floors

//go:generate go test -count=1 -run ^TestDrawing$ . -args -update
