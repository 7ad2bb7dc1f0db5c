// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/lifetime"
)

func TestMain(m *testing.M) { Main(m) }

func leaveNode() *lifetime.Node {
	n := new(lifetime.Node)
	if err := n.Init("Thing", func() error { return nil }); err != nil {
		panic(err)
	}
	return n
}

func endNode(n *lifetime.Node) {
	if _, err := n.BeginClose(); err != nil {
		panic(err)
	}
	n.End()
}

func TestLeaksObjects(t *testing.T) {
	require.Empty(t, leaks(0))
	n := leaveNode()
	left := leaks(0)
	require.Len(t, left, 1)
	require.Contains(t, left[0], "Thing created at")
	require.Contains(t, left[0], "leaveNode")
	endNode(n)
	require.Empty(t, leaks(0))
}

func TestLeaksGoroutines(t *testing.T) {
	stop := make(chan struct{})
	go waitFor(stop)
	left := leaks(50 * time.Millisecond)
	require.Len(t, left, 1)
	require.Contains(t, left[0], "waitFor")
	// A goroutine that ends within the grace period is no leak.
	time.AfterFunc(30*time.Millisecond, func() { close(stop) })
	require.Empty(t, leaks(5*time.Second))
}

//go:noinline
func waitFor(stop <-chan struct{}) { <-stop }

// tests represents the tests of a binary.
type tests func() int

func (f tests) Run() int { return f() }

func TestRun(t *testing.T) {
	var left *lifetime.Node
	stop := make(chan struct{})
	for _, c := range []struct {
		what      string
		tests     tests
		code      int
		text      string
		afterward func()
	}{
		{"nothing", func() int { return 0 }, 0, "", func() {}},
		{"failure", func() int { return 2 }, 2, "", func() {}},
		{"object", func() int { left = leaveNode(); return 0 }, 1, "leaveNode", func() { endNode(left) }},
		{"failure and object", func() int { left = leaveNode(); return 2 }, 2, "leaveNode", func() { endNode(left) }},
		{"goroutine", func() int { go waitFor(stop); return 0 }, 1, "waitFor", func() { close(stop) }},
	} {
		var out strings.Builder
		require.Equal(t, c.code, run(c.tests, 30*time.Millisecond, &out), c.what)
		require.Contains(t, out.String(), c.text)
		require.Equal(t, c.text != "", strings.HasPrefix(out.String(), "FAIL: 1 left behind"), out.String())
		c.afterward()
		require.Empty(t, leaks(time.Second), c.what)
	}
}

func TestReportCounts(t *testing.T) {
	var out strings.Builder
	report(&out, []string{"b", "a", "b"})
	require.Equal(t, "FAIL: 3 left behind by the tests:\n1 x a\n2 x b\n", out.String())
}
