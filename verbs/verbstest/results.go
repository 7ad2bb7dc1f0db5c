// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Result is what came of one test of the suite, or of a part of one that has a name of its own.
type Result struct {
	Test   string // SUBJECT/TEST or SUBJECT/TEST/PART
	Failed bool
	// Lacks is what the device does not have of that which the test is about; the test has required that it is refused as
	// ErrNotSupported. Empty = everything was tested.
	Lacks []Lack
}

// Lack is an ability that a device does not have.
type Lack struct {
	What  string // for example "srq", or the name of a verbs.Op
	Errno string // the C name of the errno that came from below, "none" if the provider or the handle refused by itself
}

// String returns "WHAT: ERRNO".
func (l Lack) String() string { return l.What + ": " + l.Errno }

// record collects the result of a test while it runs.
type record struct {
	name  string
	lacks []Lack
}

// lacking requires that err says that an ability is not supported, and notes it in the test's result and log.
func (w *world) lacking(what string, err error) {
	w.Helper()
	requireErr(w.T, err, verbs.ErrNotSupported)
	w.note(Lack{what, errnoName(err)})
}

// has reports whether the active device has an operation, and notes it if not. That a post is refused then is what Device/Ops
// requires.
func (w *world) has(op verbs.Op) bool {
	if w.a.ctx.Supports(op) {
		return true
	}
	w.note(Lack{op.String(), "none"})
	return false
}

func (w *world) note(l Lack) {
	if !slices.Contains(w.rec.lacks, l) {
		w.rec.lacks = append(w.rec.lacks, l)
		w.Logf("not supported: %v", l)
	}
}

// report hands the result on to whoever collects them.
func (w *world) report(failed bool) {
	if w.f.Record != nil {
		w.f.Record(Result{Test: w.rec.name, Failed: failed, Lacks: w.rec.lacks})
	}
}

// errnoNames are the errnos by which drivers and libraries say that they do not have something.
var errnoNames = map[syscall.Errno]string{syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.ENOSYS: "ENOSYS", syscall.EINVAL: "EINVAL",
	syscall.EPERM: "EPERM", syscall.ENOTTY: "ENOTTY", syscall.ENODEV: "ENODEV", syscall.ENOMEM: "ENOMEM",
	syscall.EPROTONOSUPPORT: "EPROTONOSUPPORT", syscall.EAFNOSUPPORT: "EAFNOSUPPORT"}

func errnoName(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return "none"
	}
	if name, ok := errnoNames[errno]; ok {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// unless requires that a call has worked, or reports true and notes what the device lacks if it is not supported.
func (w *world) unless(what string, err error) bool {
	w.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		w.lacking(what, err)
		return true
	}
	require.NoError(w, err)
	return false
}

// unlessRefused is unless for a call that a device which has the ability must refuse too.
func (w *world) unlessRefused(what string, err error) bool {
	w.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		w.lacking(what, err)
		return true
	}
	require.Error(w, err)
	return false
}
