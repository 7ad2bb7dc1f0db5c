// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package dynlib

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

// dlerror's text belongs to the thread, so it is fetched in the call that failed.
static void *dynlib_open(const char *file, const char **why) {
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		*why = dlerror();
	return library;
}

static uintptr_t dynlib_symbol(void *library, const char *name) { return (uintptr_t)dlsym(library, name); }

// A static program that opens a shared library has two C libraries from then on, each with an errno of its own.
static int dynlib_shares_errno(void *library) {
	int *(*location)(void) = (int *(*)(void))dlsym(library, "__errno_location");
	return !location || location() == &errno;
}
*/
import "C"

import (
	"strings"
	"unsafe"
)

// Substitute takes the place of every library if it is not nil: it returns the address of a
// function, 0 if it has none of that name. It is set while nothing else runs, by package fakeverbs.
var Substitute func(name string) uintptr

// Load opens a library and finds the functions that list names from 0 on; an empty name ends the
// list. It calls set with the address of each one, 0 if it is optional and the library does not
// have it. The error is an [*Error]. The library stays open.
//
// A name stands for its newest version, which dlsym prefers (there is no dlvsym in musl). That is
// the version that a program would be linked with, unless the library were older than its headers.
func Load(file string, list func(i int) (name string, optional bool), set func(i int, address uintptr)) error {
	find := Substitute
	if find == nil {
		library, err := open(file)
		if err != nil {
			return err
		}
		find = library.symbol
	}
	for i := 0; ; i++ {
		name, optional := list(i)
		if name == "" {
			return nil
		}
		address := find(name)
		if address == 0 && !optional {
			return &Error{file, "is too old: it has no " + name}
		}
		set(i, address)
	}
}

// library is what dlopen returned.
type library struct{ c unsafe.Pointer }

func open(file string) (library, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	c := C.dynlib_open(name, &why)
	switch text := C.GoString(why); {
	case strings.Contains(text, "No such file"): // glibc's words, and musl's
		return library{}, &Error{file, "not found: " + text}
	case c == nil:
		return library{}, &Error{file, "cannot be opened: " + text}
	case C.dynlib_shares_errno(c) == 0:
		return library{}, &Error{file,
			"cannot be used by a statically linked program: it would bring a second C library"}
	}
	return library{c}, nil
}

func (l library) symbol(name string) uintptr {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uintptr(C.dynlib_symbol(l.c, c))
}
