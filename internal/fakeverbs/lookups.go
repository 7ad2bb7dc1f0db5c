// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/internal/dynlib"
)

// lookups are the names of functions that the program has looked up in the libraries.
var lookups struct {
	sync.Mutex
	faked, missing []string
}

// Lacks is an environment variable with the names of functions, separated by commas, that the libraries do not have, as older
// versions. A program looks functions up once, so it is set for a process of its own.
const Lacks = "FAKEVERBS_LACKS"

func init() {
	lacks := strings.Split(os.Getenv(Lacks), ",")
	dynlib.Substitute = func(name string) uintptr {
		address := cSymbol(name)
		lookups.Lock()
		defer lookups.Unlock()
		if slices.Contains(lacks, name) {
			return 0
		}
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
