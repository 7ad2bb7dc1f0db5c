// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// pkg is a package as go list describes it. Imports are those of its code, without its tests.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// graph holds packages by import path.
type graph map[string]pkg

// inside returns p's path below the module's, "." for the module's own, and whether it is in the
// module at all.
func inside(module, p string) (rel string, ok bool) {
	if p == module {
		return ".", true
	}
	return strings.CutPrefix(p, module+"/")
}

// paths returns the import paths in order, so that findings come in order.
func (g graph) paths() []string {
	var all []string
	for p := range g {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// floor returns the floor of rel, a path below the module's, according to rules whose keys may be
// patterns of path.Match.
func floor(rules map[string]int, rel string) (int, bool) {
	if f, ok := rules[rel]; ok {
		return f, true
	}
	for pattern, f := range rules {
		if ok, _ := path.Match(pattern, rel); ok {
			return f, true
		}
	}
	return 0, false
}

// floorFaults names the module's packages that have no floor and the imports that do not lead down.
func (g graph) floorFaults(module string, rules map[string]int) []string {
	var faults []string
	for _, p := range g.paths() {
		rel, ok := inside(module, p)
		if !ok {
			continue
		}
		from, ok := floor(rules, rel)
		if !ok {
			faults = append(faults, fmt.Sprintf("%s has no floor", rel))
			continue
		}
		for _, i := range g[p].Imports {
			target, ok := inside(module, i)
			if !ok {
				continue
			}
			// A target without a floor has a finding of its own.
			if to, ok := floor(rules, target); ok && to >= from {
				faults = append(faults, fmt.Sprintf("%s (floor %d) imports %s (floor %d)", rel, from, target, to))
			}
		}
	}
	return faults
}

// dependencyFaults follows the imports of the module's packages for which library is true and names
// every package outside of the standard library and the module that allowed refuses, with the chain
// of imports that leads to it.
func (g graph) dependencyFaults(module string, library, allowed func(string) bool) []string {
	var faults []string
	for _, p := range g.paths() {
		rel, ok := inside(module, p)
		if !ok || !library(rel) {
			continue
		}
		from := map[string]string{p: ""}
		for queue := []string{p}; len(queue) > 0; queue = queue[1:] {
			here := queue[0]
			_, ours := inside(module, here)
			if !ours && !g[here].Standard && !allowed(here) {
				faults = append(faults, "dependency not allowed: "+chain(from, here))
				continue
			}
			for _, i := range g[here].Imports {
				if _, seen := from[i]; !seen && i != "C" && i != "unsafe" {
					from[i] = here
					queue = append(queue, i)
				}
			}
		}
	}
	return faults
}

// chain writes the way that a search found to p.
func chain(from map[string]string, p string) string {
	if from[p] == "" {
		return p
	}
	return chain(from, from[p]) + " -> " + p
}
