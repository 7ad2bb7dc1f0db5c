// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"bytes"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

const licence = "SPDX-License-Identifier: BSD-3-Clause"

// licensed reports whether a file begins with the licence line, in the comment style that its name calls for. A line
// for the program that runs a script may come first.
func licensed(name string, src []byte) bool {
	mark := "# "
	if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".c") || strings.HasSuffix(name, ".h") {
		mark = "// "
	}
	if bytes.HasPrefix(src, []byte("#!")) {
		_, src, _ = bytes.Cut(src, []byte("\n"))
	}
	return bytes.HasPrefix(src, []byte(mark+licence+"\n"))
}

// needsLicence reports whether a file is source text that must carry the licence line.
func needsLicence(name string, src []byte) bool {
	switch base := path.Base(name); {
	case base == "Makefile", base == "Dockerfile", bytes.HasPrefix(src, []byte("#!")):
		return true
	default:
		switch path.Ext(base) {
		case ".go", ".c", ".h", ".sh", ".bash", ".yaml", ".yml":
			return true
		}
	}
	return false
}

// mayUnsafe reports whether a file's name says that it holds unsafe code.
func mayUnsafe(name string) bool {
	base := strings.TrimSuffix(path.Base(name), ".go")
	base = strings.TrimSuffix(base, "_test")
	return strings.HasSuffix(base, "_unsafe") || strings.HasPrefix(base, "cgo_")
}

// mayCallC reports whether a file, named from the top of the module, is one of those that may import "C".
func mayCallC(name string) bool {
	return slices.Contains([]string{"verbs/cgo_verbs.go", "cm/cgo_cm.go", "internal/dynlib/cgo_dynlib.go"}, name) ||
		path.Dir(name) == "internal/fakeverbs" || path.Dir(name) == "preload"
}

// sourceFaults says what is wrong with one file, named from the top of the module.
func sourceFaults(name string, src []byte) []string {
	var faults []string
	if needsLicence(name, src) && !licensed(name, src) {
		faults = append(faults, name+" does not begin with the line "+licence)
	}
	if !strings.HasSuffix(name, ".go") {
		return faults
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
	if err != nil {
		return append(faults, err.Error())
	}
	for _, i := range file.Imports {
		switch {
		case i.Path.Value == `"unsafe"` && !mayUnsafe(name):
			faults = append(faults, name+" imports unsafe: only *_unsafe.go and cgo_*.go may")
		case i.Path.Value == `"C"` && !mayCallC(name):
			faults = append(faults, name+` imports "C": only verbs/cgo_verbs.go, cm/cgo_cm.go, internal/dynlib/cgo_dynlib.go, internal/fakeverbs and preload may`)
		}
	}
	return faults
}
