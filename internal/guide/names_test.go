// SPDX-License-Identifier: BSD-3-Clause

package guide

import (
	"encoding/json"
	"errors"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/goverbs/goverbs"

// packages are those whose names the guide uses.
var packages = []string{"verbs", "cm", "ext", "usiw", "usiw/usiwtest", "usiw/capture", "goverbstest"}

// load type-checks the packages, by what the compiler has exported, and returns them by name.
func load(t *testing.T) map[string]*types.Package {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, p := range packages {
		args = append(args, module+"/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = top
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		exports[p.ImportPath] = p.Export
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	all := make(map[string]*types.Package)
	for _, p := range packages {
		pkg, err := imp.Import(module + "/" + p)
		require.NoError(t, err)
		all[pkg.Name()] = pkg
	}
	return all
}

// exists reports whether a name like verbs.PD.RegMR, verbs.QPConfig.SRQ or cm.Listen is one of the
// packages.
func exists(all map[string]*types.Package, name string) bool {
	parts := strings.Split(name, ".")
	pkg := all[parts[0]]
	if pkg == nil || len(parts) < 2 || len(parts) > 3 {
		return false
	}
	obj := pkg.Scope().Lookup(parts[1])
	if obj == nil || !obj.Exported() || len(parts) == 2 {
		return obj != nil && obj.Exported()
	}
	if _, isType := obj.(*types.TypeName); !isType || !token.IsExported(parts[2]) {
		return false
	}
	member, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, pkg, parts[2])
	if member == nil { // a method of an interface
		member, _, _ = types.LookupFieldOrMethod(obj.Type(), true, pkg, parts[2])
	}
	return member != nil
}

// qualified is a name of one of the packages in backquotes.
var qualified = regexp.MustCompile("`((?:verbs|cm|ext|usiw|usiwtest|capture|goverbstest)\\.[A-Za-z0-9_.]+)`")

// Every name that the guide has of our packages is there.
func TestGoNames(t *testing.T) {
	all := load(t)
	names := qualified.FindAllStringSubmatch(read(t, path), -1)
	require.Greater(t, len(names), 150)
	for _, m := range names {
		require.True(t, exists(all, m[1]), m[1])
	}

	for name, want := range map[string]bool{
		"verbs.Devices": true, "verbs.PD.RegMR": true, "verbs.QPConfig.SRQ": true, "verbs.WCRemAccessErr": true,
		"verbs.ProviderQP.Modify": true, "verbs.WCStatus.Error": true, "cm.Endpoint.Do": true,
		"verbs.devices": false, "verbs.PD.RegMRs": false, "verbs.QPConfig.srq": false, "verbs.PD.node": false,
		"verbs":      false,
		"cm.Devices": false, "verbs.Devices.X": false, "other.X": false, "verbs.PD.RegMR.X": false,
	} {
		require.Equal(t, want, exists(all, name), name)
	}
}

// status is a row of the table of statuses: the first cell.
var status = regexp.MustCompile("(?m)^\\| `verbs\\.(WC[A-Za-z]+)` \\|")

// The table of statuses has all of them but the success.
func TestStatuses(t *testing.T) {
	scope := load(t)["verbs"].Scope()
	missing := make(map[string]bool)
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && strings.HasSuffix(c.Type().String(), "verbs.WCStatus") &&
			c.Exported() {
			missing[name] = true
		}
	}
	require.Len(t, missing, 22)
	delete(missing, "WCSuccess")
	for _, m := range status.FindAllStringSubmatch(read(t, path), -1) {
		require.True(t, missing[m[1]], "%s is there twice, or no status", m[1])
		delete(missing, m[1])
	}
	require.Empty(t, missing)
}
