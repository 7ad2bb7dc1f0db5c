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

// lookups are the names of functions that the program has looked up in the libraries.
var lookups struct {
	sync.Mutex
	faked, missing []string
}

// lacksVar is an environment variable with the names of functions, separated by commas, that the
// libraries do not have.
const lacksVar = "FAKEVERBS_LACKS"

// NamedT is what InProcessWithout needs of a test.
type NamedT interface {
	T
	Name() string
}

// InProcessWithout runs a test once more, in a process whose libraries lack the named functions, as
// older versions of them do: a program looks functions up only once. It reports true in that
// process, where the test goes on. In the first process it reports false, and the test has failed
// if it did in the other.
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

// Lookups returns the functions that the program has looked up in libibverbs and librdmacm, which
// it does when it first uses them: those that this package has given it, and those that it lacks.
func Lookups() (faked, missing []string) {
	lookups.Lock()
	defer lookups.Unlock()
	return slices.Clone(lookups.faked), slices.Clone(lookups.missing)
}
