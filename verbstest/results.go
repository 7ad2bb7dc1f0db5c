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

// Result is the result of a test of the suite, or of a part of a test that has a name of its own.
type Result struct {
	Test   string // SUBJECT/TEST or SUBJECT/TEST/PART
	Failed bool
	// Lacks has the abilities that the test and its parts need and the device does not have. If the
	// device can refuse to use one, the test has required that it does, with ErrNotSupported. Empty
	// = everything was tested.
	Lacks []Lack
}

// Lack is an ability that a device does not have.
type Lack struct {
	What  string // for example "srq", or the name of a verbs.Op
	Errno string // the C name of the errno of the driver or library, "none" if the provider or the handle refused
}

// String returns "WHAT: ERRNO".
func (l Lack) String() string { return l.What + ": " + l.Errno }

// outcome says how a test ended. Every test, and every part of a test, returns it. So none can end
// early and pass without noting what it left out.
type outcome int

const (
	// tested: the test has tested its subject, to its end. It has noted what it could not test.
	tested outcome = 1 + iota
	// noted: the test has ended early, because the device does not have its subject, and has noted
	// that.
	noted
)

// record collects the result of a test while it runs.
type record struct {
	name  string
	lacks []Lack
}

func (r *record) add(l Lack) {
	if !slices.Contains(r.lacks, l) {
		r.lacks = append(r.lacks, l)
	}
}

// check compares the outcome of a test with what it has noted.
func (r *record) check(o outcome) error {
	switch {
	case o == tested, o == noted && len(r.lacks) > 0:
		return nil
	case o == noted:
		return fmt.Errorf("%s ended before its subject and has noted nothing that the device lacks", r.name)
	}
	return fmt.Errorf("%s does not say whether it got to its subject: outcome %d", r.name, o)
}

// lacking requires that err says that an ability is not supported, and notes it in the test's
// result and log.
func (w *world) lacking(what string, err error) {
	w.Helper()
	requireErr(w.T, err, verbs.ErrNotSupported)
	w.note(Lack{what, errnoName(err)})
}

// has reports whether the active device has an operation, and notes it if not. Device/Ops requires
// that a post is then refused.
func (w *world) has(op verbs.Op) bool {
	if w.a.ctx.Supports(op) {
		return true
	}
	w.note(Lack{op.String(), "none"})
	return false
}

func (w *world) note(l Lack) {
	if !slices.Contains(w.rec.lacks, l) {
		w.rec.add(l)
		w.Logf("not supported: %v", l)
	}
}

// without notes something that the device does differently, or not at all, without refusing it.
func (w *world) without(what string) { w.note(Lack{what, "none"}) }

// report passes the result to Fabric.Record.
func (w *world) report(failed bool) {
	if w.f.Record != nil {
		w.f.Record(Result{Test: w.rec.name, Failed: failed, Lacks: w.rec.lacks})
	}
}

// errnoNames are the errnos with which drivers and libraries report that they do not have
// something.
var errnoNames = map[syscall.Errno]string{syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.ENOSYS: "ENOSYS",
	syscall.EINVAL: "EINVAL", syscall.EPERM: "EPERM", syscall.ENOTTY: "ENOTTY", syscall.ENODEV: "ENODEV",
	syscall.ENOMEM:          "ENOMEM",
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

// unless requires that a call has worked, or reports true and notes what the device lacks if it is
// not supported.
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
