// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// closeHandles fails the test if handles of the NICs are open, and closes them.
func (nw *Network) closeHandles(tb testing.TB) {
	tb.Helper()
	left := eventually(nw.handles)
	nw.cut()
	if len(left) > 0 {
		text := make([]string, len(left))
		for i, n := range left {
			text[i] = n.Describe()
		}
		tb.Errorf("goverbstest: %d handles were not closed:\n%s", len(left), list(text))
		for _, n := range left {
			_ = n.CloseTree() // handles that it cannot close are reported below
		}
		if left = nw.handles(); len(left) > 0 {
			tb.Errorf("goverbstest: %d of them cannot be closed", len(left))
		}
	}
	for _, nic := range nw.NICs {
		_ = nic.Device().CloseShared() // if it is busy, its objects have already been reported
	}
}

// handles returns the open handles of the NICs.
func (nw *Network) handles() []*lifetime.Node {
	var all []*lifetime.Node
	for _, nic := range nw.NICs {
		all = append(all, lifetime.LiveOf(nic.Device())...)
	}
	return all
}

// list joins texts, one per line, and counts identical ones.
func list(texts []string) string {
	slices.Sort(texts)
	var b strings.Builder
	for len(texts) > 0 {
		same := 1
		for same < len(texts) && texts[same] == texts[0] {
			same++
		}
		fmt.Fprintf(&b, "%d x %s\n", same, strings.TrimSuffix(texts[0], "\n"))
		texts = texts[same:]
	}
	return b.String()
}
