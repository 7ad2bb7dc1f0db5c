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

// A static program that opens a shared library has two C libraries from then on, each with its own
// errno.
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

// Substitute, if not nil, replaces every library: it returns the address of the named function, or
// 0 if it lacks one. Package fakeverbs sets it while nothing else is running.
var Substitute func(name string) uintptr

// Load opens a library and looks up the functions that list names, starting at index 0; an empty
// name ends the list. It calls set with each address, or with 0 for an optional function that the
// library lacks. The error is an [*Error]. The library stays open.
//
// A name resolves to its newest version, which is what dlsym returns (musl has no dlvsym). A
// program linked against the library would use the same version, unless the library is older than
// its headers.
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
	case strings.Contains(text, "No such file"): // the wording of glibc and musl
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
