// SPDX-License-Identifier: BSD-3-Clause

// Package dynlib opens C shared libraries at run time, so that a program can be built without their
// headers and start without the libraries.
//
// Without cgo, on systems other than Linux and with the tag noibverbs, the package has only the
// error type.
package dynlib

// Error reports why a library cannot be used: `library "libibverbs.so.1" not found: ...`.
type Error struct {
	Library string // file name
	Reason  string
}

// Error returns the library's name and the reason.
func (e *Error) Error() string { return "library " + e.Library + " " + e.Reason }
