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

// kernelLicence is that of what becomes a part of a module of the kernel.
const kernelLicence = "SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause"

// licenceOf returns the licence line of a file, named from the top of the module.
func licenceOf(name string) string {
	if strings.HasPrefix(name, "kernel/") && slices.Contains([]string{".c", ".h", ".cocci"}, path.Ext(name)) {
		return kernelLicence
	}
	return licence
}

// licensed reports whether a file begins with the licence line, in the comment style that its name
// calls for. A line for the program that runs a script may come first.
func licensed(name string, src []byte) bool {
	mark := "# "
	if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".c") || strings.HasSuffix(name, ".h") ||
		strings.HasSuffix(name, ".cocci") {
		mark = "// "
	}
	if bytes.HasPrefix(src, []byte("#!")) {
		_, src, _ = bytes.Cut(src, []byte("\n"))
	}
	return bytes.HasPrefix(src, []byte(mark+licenceOf(name)+"\n"))
}

// needsLicence reports whether a file is source text that must carry the licence line.
func needsLicence(name string, src []byte) bool {
	switch base := path.Base(name); {
	case base == "Makefile", base == "Dockerfile", bytes.HasPrefix(src, []byte("#!")):
		return true
	default:
		switch path.Ext(base) {
		case ".go", ".c", ".h", ".cocci", ".sh", ".bash", ".yaml", ".yml":
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

// mayCallC reports whether a file, named from the top of the module, is one of those that may
// import "C".
func mayCallC(name string) bool {
	return slices.Contains([]string{"verbs/cgo_verbs.go", "cm/cgo_cm.go", "internal/dynlib/cgo_dynlib.go"}, name) ||
		path.Dir(name) == "internal/fakeverbs" || path.Dir(name) == "preload"
}

// sourceFaults says what is wrong with one file, named from the top of the module.
func sourceFaults(name string, src []byte) []string {
	var faults []string
	if needsLicence(name, src) && !licensed(name, src) {
		faults = append(faults, name+" does not begin with the line "+licenceOf(name))
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
			faults = append(faults, name+
				` imports "C": only verbs/cgo_verbs.go, cm/cgo_cm.go, internal/dynlib/cgo_dynlib.go, internal/fakeverbs and preload may`)
		}
	}
	return faults
}
