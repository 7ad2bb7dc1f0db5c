// SPDX-License-Identifier: BSD-3-Clause

// Package dynlib opens shared libraries of C while a program runs, so that the program starts
// without them and needs none of their headers to be built.
//
// The package is empty but for this text and the error's type without cgo, on systems other than
// Linux and with the tag noibverbs.
package dynlib

// Error is why a library cannot be used, for example `library "libibverbs.so.1" not found: ...`.
type Error struct {
	Library string // the file's name
	Reason  string
}

// Error returns the reason with the name of the library.
func (e *Error) Error() string { return "library " + e.Library + " " + e.Reason }
