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

// Result is the result of a test of the suite, or of a named part of a test.
type Result struct {
	Test   string // SUBJECT/TEST or SUBJECT/TEST/PART
	Failed bool
	// Lacks lists the features that the test and its parts need and the device lacks. If the device
	// can refuse a feature, the test has required that it does, with ErrNotSupported. If Lacks is
	// empty, everything was tested.
	Lacks []Lack
}

// Lack is a feature that a device lacks.
type Lack struct {
	What  string // for example "srq", or the name of a verbs.Op
	Errno string // the C name of the errno from the driver or library, "none" if the provider or the handle refused
}

// String returns "WHAT: ERRNO".
func (l Lack) String() string { return l.What + ": " + l.Errno }

// outcome says how a test ended. Every test, and every part of a test, returns one, so that none
// can return early and pass without recording what it skipped.
type outcome int

const (
	// tested: the test ran to completion. It has recorded what it could not test.
	tested outcome = 1 + iota
	// noted: the test returned early because the device lacks its subject, and has recorded that.
	noted
)

// record collects the result of a running test.
type record struct {
	name  string
	lacks []Lack
}

func (r *record) add(l Lack) {
	if !slices.Contains(r.lacks, l) {
		r.lacks = append(r.lacks, l)
	}
}

// check compares the outcome of a test with what it recorded.
func (r *record) check(o outcome) error {
	switch {
	case o == tested, o == noted && len(r.lacks) > 0:
		return nil
	case o == noted:
		return fmt.Errorf("%s ended before its subject and has noted nothing that the device lacks", r.name)
	}
	return fmt.Errorf("%s does not say whether it got to its subject: outcome %d", r.name, o)
}

// lacking requires that err reports an unsupported feature, and records it in the test's result and
// log.
func (w *world) lacking(what string, err error) {
	w.Helper()
	requireErr(w.T, err, verbs.ErrNotSupported)
	w.note(Lack{what, errnoName(err)})
}

// has reports whether the active device supports an operation, and records it if not. Device/Ops
// requires that a post is then refused.
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

// without records something that the device does differently, or not at all, without refusing it.
func (w *world) without(what string) { w.note(Lack{what, "none"}) }

// report passes the result to Fabric.Record.
func (w *world) report(failed bool) {
	if w.f.Record != nil {
		w.f.Record(Result{Test: w.rec.name, Failed: failed, Lacks: w.rec.lacks})
	}
}

// errnoNames lists the errnos with which drivers and libraries report an unsupported feature.
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

// unless requires that a call succeeded. If the call is not supported, it reports true and records
// what the device lacks.
func (w *world) unless(what string, err error) bool {
	w.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		w.lacking(what, err)
		return true
	}
	require.NoError(w, err)
	return false
}

// unlessRefused is like unless, for a call that even a device with the feature must refuse.
func (w *world) unlessRefused(what string, err error) bool {
	w.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		w.lacking(what, err)
		return true
	}
	require.Error(w, err)
	return false
}
