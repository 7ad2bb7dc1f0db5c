// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/internal/dynlib"
)

// lookups records the functions that the program looked up in the libraries.
var lookups struct {
	sync.Mutex
	faked, missing []string
}

// lacksVar is an environment variable with a comma-separated list of functions that the libraries
// lack.
const lacksVar = "FAKEVERBS_LACKS"

// NamedT is the part of testing.TB that InProcessWithout needs.
type NamedT interface {
	T
	Name() string
}

// InProcessWithout runs a test again in a process whose libraries lack the named functions, like
// older versions, because a program looks functions up only once. In that process it reports true,
// and the test continues. In the first process it reports false, and fails the test if it failed in
// the other.
func InProcessWithout(t NamedT, functions ...string) bool {
	t.Helper()
	lacks := strings.Join(functions, ",")
	if os.Getenv(lacksVar) == lacks {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), lacksVar+"="+lacks)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("fakeverbs: the process without %v: %v\n%s", functions, err, out)
	}
	return false
}

func init() {
	lacks := strings.Split(os.Getenv(lacksVar), ",")
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

// Lookups returns the functions that the program looked up in libibverbs and librdmacm, which
// happens on their first use: those that this package provided, and those that it lacks.
func Lookups() (faked, missing []string) {
	lookups.Lock()
	defer lookups.Unlock()
	return slices.Clone(lookups.faked), slices.Clone(lookups.missing)
}
