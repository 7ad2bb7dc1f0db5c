// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"slices"
	"strings"
)

// pkg is a package as go list describes it. Imports are those of its code, without its tests.
type pkg struct {
	ImportPath, Name           string
	Standard                   bool
	GoFiles, CgoFiles, Imports []string
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

// matches reports whether rel is one of patterns, or below one that ends in "/...".
func matches(patterns []string, rel string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		dir, below := strings.CutSuffix(p, "/...")
		return rel == dir || below && strings.HasPrefix(rel, dir+"/")
	})
}

// has reports whether the module has a package that matches pattern.
func (g graph) has(module, pattern string) bool {
	return slices.ContainsFunc(g.paths(), func(p string) bool {
		rel, ok := inside(module, p)
		return ok && matches([]string{pattern}, rel)
	})
}

// library reports whether a package must do with few dependencies: all but programs and free.
func (g graph) library(rel string) bool {
	p, ok := g[module+"/"+rel]
	return ok && p.Name != "main" && !matches(free, rel)
}

// chains returns, for each of the module's packages that match from, the shortest chain of imports
// to another package that matches to.
func (g graph) chains(module string, from, to []string) (found []string) {
	for _, p := range g.paths() {
		if rel, ok := inside(module, p); ok && matches(from, rel) {
			if way := g.way(p, func(q string) bool {
				rel, ok := inside(module, q)
				return ok && q != p && matches(to, rel)
			}); way != "" {
				found = append(found, way)
			}
		}
	}
	return found
}

// way returns the shortest way from a package to one that arrived accepts, "" if there is none.
func (g graph) way(p string, arrived func(string) bool) string {
	from := map[string]string{p: ""}
	for queue := []string{p}; len(queue) > 0; queue = queue[1:] {
		if arrived(queue[0]) {
			return chain(from, queue[0])
		}
		for _, i := range g[queue[0]].Imports {
			if _, seen := from[i]; !seen {
				from[i] = queue[0]
				queue = append(queue, i)
			}
		}
	}
	return ""
}

// importers names the packages of the module that are not for tests and import one that is.
func (g graph) importers(module string, isForTests func(string) bool) (found []string) {
	for _, p := range g.paths() {
		rel, ok := inside(module, p)
		if !ok || isForTests(rel) {
			continue
		}
		for _, i := range g[p].Imports {
			if target, ok := inside(module, i); ok && isForTests(target) {
				found = append(found, rel+" imports "+target+", which is for tests")
			}
		}
	}
	return found
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
