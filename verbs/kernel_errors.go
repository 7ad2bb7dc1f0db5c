// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/errname"
	"github.com/goverbs/goverbs/internal/ibverbs"
)

// errNoErrno is the cause of a failed call that did not report an errno as it should.
var errNoErrno = errors.New("the library gave no errno")

// libError is a failed call of the library. errors.As finds its errno.
type libError struct {
	call  string
	errno syscall.Errno
}

// Error returns text such as "ibv_create_qp: invalid argument (EINVAL)".
func (e *libError) Error() string {
	if name := errname.Of(e.errno); name != "" {
		return fmt.Sprintf("%s: %v (%s)", e.call, e.errno, name)
	}
	return fmt.Sprintf("%s: %v", e.call, e.errno)
}

// Unwrap returns the errno.
func (e *libError) Unwrap() error { return e.errno }

// Is maps errnos to the errors of this package.
func (e *libError) Is(target error) bool {
	switch e.errno {
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return target == ErrNotSupported
	case syscall.EBUSY:
		return target == ErrBusy
	case syscall.EINVAL:
		return target == ErrInvalid
	case syscall.ENODEV:
		return target == ErrNoDevice
	case syscall.ENODATA:
		return target == ErrNoGID // from the kernel's core, for an index without an entry
	}
	return false
}

// callError wraps the error of a call of the library; it returns nil for nil.
func callError(call string, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno >= ibverbs.NoErrno {
		return fmt.Errorf("%s: %w", call, errNoErrno)
	}
	return &libError{call: call, errno: errno}
}
