// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/dynlib"
)

// lookups are the names of functions that the program has looked up in the libraries.
var lookups struct {
	sync.Mutex
	faked, missing []string
}

func init() {
	dynlib.Substitute = func(name string) uintptr {
		address := cSymbol(name)
		lookups.Lock()
		defer lookups.Unlock()
		if address == 0 {
			lookups.missing = append(lookups.missing, name)
		} else {
			lookups.faked = append(lookups.faked, name)
		}
		return address
	}
}

// Lookups returns the functions that the program has looked up in libibverbs and librdmacm, which it does when it first uses
// them: those that this package has given it, and those that it lacks.
func Lookups() (faked, missing []string) {
	lookups.Lock()
	defer lookups.Unlock()
	return slices.Clone(lookups.faked), slices.Clone(lookups.missing)
}
