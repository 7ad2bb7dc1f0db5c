// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// printed are the methods without which fmt, log/slog and encoding/json walk through the insides of
// an object, see package internal/show. An error has Error in the place of String.
var printed = []string{"Format", "String", "LogValue", "MarshalJSON"}

// mustPrint reports whether programs get the objects of a package.
func mustPrint(pkg string) bool {
	for _, other := range []string{"internal", "cmd", "testbed", "bench", "examples"} {
		if slices.Contains(strings.Split(pkg, "/"), other) {
			return false
		}
	}
	return true
}

// printFaults names the exported types of a package that can be printed unsafely: structs that have
// unexported fields, or inherit the methods of an embedded field, and structs of a package all of
// whose types are to be printed.
func printFaults(pkg string, all bool, files ...*ast.File) (faults []string) {
	var structs []string
	methods := make(map[string][]string)
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if t, ok := s.(*ast.TypeSpec); ok && t.Name.IsExported() &&
						(all && isStruct(t.Type) || hasInsides(t.Type)) {
						structs = append(structs, t.Name.Name)
					}
				}
			case *ast.FuncDecl:
				if d.Recv != nil {
					name := receiver(d.Recv.List[0].Type)
					methods[name] = append(methods[name], d.Name.Name)
				}
			}
		}
	}
	slices.Sort(structs)
	for _, s := range structs {
		for _, m := range printed {
			if !slices.Contains(methods[s], m) && (m != "String" || !slices.Contains(methods[s], "Error")) {
				faults = append(faults, pkg+"."+s+" has no "+m)
			}
		}
	}
	return faults
}

func isStruct(t ast.Expr) bool { _, ok := t.(*ast.StructType); return ok }

// hasInsides reports whether a type is a struct with unexported or embedded fields. A number is no
// such field: it leads nowhere, and a struct with only numbers hidden is a value, copied as a
// whole.
func hasInsides(t ast.Expr) bool {
	s, ok := t.(*ast.StructType)
	if !ok {
		return false
	}
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		if t, ok := f.Type.(*ast.Ident); ok && len(f.Names) > 0 && slices.Contains(numbers, t.Name) {
			return false
		}
		return len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return !n.IsExported() })
	})
}

var numbers = []string{"bool", "int", "uint8", "uint16", "uint32", "uint64"}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr: // of a generic type
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// TestPrinted: every handle, and everything of package cm, is safe to print.
func TestPrinted(t *testing.T) {
	packages := make(map[string][]*ast.File)
	fset := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(top, filepath.Dir(p))
		if err != nil || !mustPrint(filepath.ToSlash(dir)) {
			return err
		}
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		packages[filepath.ToSlash(dir)] = append(packages[filepath.ToSlash(dir)], f)
		return err
	}))
	require.Contains(t, packages, "usiw/usiwtest")
	var faults []string
	for pkg, files := range packages {
		faults = append(faults, printFaults(pkg, pkg == "cm", files...)...)
	}
	require.Empty(t, faults, "see package internal/show")
}

func TestPrintFaultsAreFound(t *testing.T) {
	const methods = "func (q *QP) Format() {}\nfunc (q *QP) LogValue() {}\nfunc (q *QP) MarshalJSON() {}\n"
	for _, c := range []struct {
		name, src string
		all       bool
		faults    int
	}{
		{"handle", "type QP struct { n *int }\nfunc (q *QP) String() {}\n" + methods, false, 0},
		{"error", "type QP struct { n *int }\nfunc (q *QP) Error() {}\n" + methods, false, 0},
		{"no String", "type QP struct { n *int }\n" + methods, false, 1},
		{"nothing", "type QP struct { N int; n *int }", false, 4},
		{"methods of another", "type QP struct { n *int }\ntype mr struct{}\nfunc (m *mr) String() {}\nfunc (m *mr) Format() {}\n", false, 4},
		{"embedded", "type QP struct { Datagram }", false, 4},
		{"numbers", "type QP struct { N int }", false, 0},
		{"hidden number", "type WR struct { N int; n uint64 }", false, 0},
		{"numbers of cm", "type QP struct { N int }", true, 4},
		{"not exported", "type qp struct { n int }", true, 0},
		{"no struct", "type QP uint8", true, 0},
		{"generic", "type QP[T any] struct { n T }\nfunc (q *QP[T]) String() {}\n", false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.src, 0)
			require.NoError(t, err)
			require.Len(t, printFaults("x", c.all, f), c.faults)
		})
	}
	require.True(t, mustPrint("usiw/usiwtest"))
	require.False(t, mustPrint("usiw/internal/testhook"))
	require.False(t, mustPrint("testbed/handles"))
}
