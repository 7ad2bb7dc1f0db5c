// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// comparisons lists everything that a step compares, by the side that does so, under the names that
// check uses.
var comparisons = []struct {
	step                        string
	driver, listener, processes []string
}{
	{step: "connect",
		driver:   []string{"the nonce in the private data", "that Reads and atomics in progress were agreed on"},
		listener: []string{toldWords, "the token in the private data"}},
	{step: "send",
		driver: []string{"the kind of answer N", "answer N", "the flags of the answer to window N",
			"the invalidated key of window N",
			"what the peer read through window N"},
		listener: []string{"the kind of message N", "message N", "what was read through window N"}},
	{step: "write",
		driver:   []string{"round N: the digest of the listening side's memory"},
		listener: []string{"round N: the digest of this side's memory", "round N: this side's memory"}},
	{step: "read",
		driver:   []string{"round N: what was read", "round N: the digest of what was read"},
		listener: []string{"round N: the digest of what the peer has read"}},
	{step: "write-imm",
		driver: []string{"the immediate that came back from Write N"},
		listener: []string{"the completion of Write N", "the flags of Write N", "the length of Write N",
			"the data of Write N",
			"the immediate of Write N"}},
	{step: "imm64",
		driver:   []string{"the completion of answer N", "answer N"},
		listener: []string{"the completion of immediate N", "the length of immediate N", "immediate N"}},
	{step: "masked-fetchadd", driver: []string{chainOriginal, chainFinal}, listener: []string{toldWords, wordInMemory}},
	{step: "masked-cmpswap", driver: []string{chainOriginal, chainFinal}, listener: []string{toldWords, wordInMemory}},
	{step: "lock",
		driver: []string{"the sum of the acquisitions", "the lock word, free and counted,", "the guarded count",
			"the guarded sum"},
		listener: []string{toldWords, "the lock word in memory", "the guarded count in memory",
			"the guarded sum in memory"},
		processes: []string{"the guarded count that was read under the lock", "the lock word while the lock was held",
			"the lock word at the release"}},
	{step: "counter",
		driver: []string{"the sum of the tickets", "the sum of the squares of the tickets", "the counter",
			"what the clients have added"},
		listener:  []string{toldWords, wordInMemory},
		processes: []string{"that ticket N follows ticket N"}},
	{step: "close",
		driver: []string{"the state after Disconnect", "the status of a receive that was left",
			"the number of flushed receives",
			"closing the connecting end"},
		listener: []string{"the state after the peer's Disconnect", "the end of the connection by the peer",
			"closing the listening end"}},
}

// Comparisons shared by several steps.
const (
	toldWords     = "the number of words that the driver told"
	wordInMemory  = "the word in memory"
	chainOriginal = "the original value that operation N brought"
	chainFinal    = "the final value"
)

// TestComparisons: the list above has every comparison in the source, except for two that have
// their own tests.
func TestComparisons(t *testing.T) {
	// TestDemoOtherHalfLacks, TestBreakListeningProcess
	listed := []string{"a step that was skipped", "listening process"}
	var steps []string
	for _, s := range comparisons {
		steps = append(steps, s.step)
		listed = slices.Concat(listed, s.driver, s.listener, s.processes)
	}
	require.Equal(t, stepOrder, steps)
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0)
	require.NoError(t, err)
	var found []string
	for path, file := range packages["demo"].Files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name, ok := comparison(call); ok {
					found = append(found, name)
				}
			}
			return true
		})
	}
	slices.Sort(listed)
	slices.Sort(found)
	require.Equal(t, slices.Compact(listed), slices.Compact(found))
}

// comparison returns the name of the comparison that a call makes.
func comparison(call *ast.CallExpr) (string, bool) {
	args := call.Args
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if f.Name != "is" {
			return "", false
		}
		args = args[1:]
	case *ast.SelectorExpr:
		if !slices.Contains([]string{"word", "count", "bytes", "noError"}, f.Sel.Name) || len(args) < 2 {
			return "", false
		}
	default:
		return "", false
	}
	if sprintf, ok := args[0].(*ast.CallExpr); ok && len(sprintf.Args) > 0 {
		args = sprintf.Args
	}
	text, ok := args[0].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(text.Value)
	return strings.ReplaceAll(name, "%d", "N"), err == nil
}

// said reports whether a half printed a difference in a step, in these words.
func said(stderr, step, words string) bool {
	return strings.Contains("\n"+plainNumbers(stderr), plainNumbers("\nstep "+step+": "+words))
}

// plainNumbers replaces every number with N, as in the names of comparisons.
func plainNumbers(s string) string { return numbers.ReplaceAllString(s, "N") }

// TestBreak: every comparison of either half detects the difference it exists for, its step fails
// in both halves, and no other step does. A run breaks one comparison in each step; the steps in
// which it breaks none must pass.
func TestBreak(t *testing.T) {
	for round := 0; ; round++ {
		var args []string
		broken := make(map[string]string)
		driver := make(map[string]bool)
		for _, s := range comparisons {
			if all := slices.Concat(s.driver, s.listener); round < len(all) {
				broken[s.step], driver[s.step] = all[round], round < len(s.driver)
				args = append(args, "--break", s.step+":"+all[round])
			}
		}
		if len(broken) == 0 {
			require.Greater(t, round, 4)
			return
		}
		l, address := listen(t, append([]string{"--json"}, args...)...)
		c := clitest.Run(t, append([]string{"demo", "--json", "--connect", address, "--clients", "2", "--ops", "20"},
			args...)...)
		r := l.End(t)
		require.Equal(t, []int{clitest.Failed, clitest.Failed}, []int{c.Code, r.Code})
		connecting, listening := decodeResult(t, c.Stdout), decodeResult(t, r.Stdout)
		require.False(t, connecting.OK)
		require.False(t, listening.OK)
		for i, step := range stepOrder {
			name, is := broken[step]
			// After the last step the halves no longer communicate.
			last := step == "close"
			require.Equal(t, is && (driver[step] || !last), !connecting.Steps[i].OK, "%s of %s: %s", name, step,
				c.Stderr)
			require.Equal(t, is && (!driver[step] || !last), !listening.Steps[i].OK, "%s of %s: %s", name, step,
				r.Stderr)
			switch {
			case !is:
				require.False(t, said(c.Stderr, step, "") || said(r.Stderr, step, ""), step)
			case driver[step]:
				require.True(t, said(c.Stderr, step, name), "%s of %s: %s", name, step, c.Stderr)
				require.True(t, last || said(r.Stderr, step, "connecting side: "+name), "%s of %s: %s", name, step,
					r.Stderr)
			default:
				require.True(t, said(r.Stderr, step, name), "%s of %s: %s", name, step, r.Stderr)
				require.True(t, last || said(c.Stderr, step, "listening side: "+name), "%s of %s: %s", name, step,
					c.Stderr)
			}
		}
	}
}

// TestBreakProcesses: a difference found by a client process ends that process and the demo, and is
// printed.
func TestBreakProcesses(t *testing.T) {
	for _, s := range comparisons {
		for _, name := range s.processes {
			r := clitest.Run(t, "demo", "--json", "--clients", "2", "--ops", "20", "--break", s.step+":"+name)
			require.Equal(t, clitest.Failed, r.Code)
			i := slices.Index(stepOrder, s.step)
			for k, step := range decodeResult(t, r.Stdout).Steps {
				require.Equal(t, k < i, step.OK, step.Name)
			}
			require.True(t, said(r.Stderr, s.step, "client process N: exit status N: goverbs demo-client: "+name),
				r.Stderr)
		}
	}
	clitest.NothingRuns(t)
}

// TestBreakListeningProcess: the exit of the listening process is part of the last step, and its
// last line is printed.
func TestBreakListeningProcess(t *testing.T) {
	for _, name := range comparisons[len(comparisons)-1].listener {
		r := clitest.Run(t, "demo", "--json", "--clients", "1", "--ops", "20", "--break", "close:"+name)
		require.Equal(t, clitest.Failed, r.Code)
		requireSteps(t, decodeResult(t, r.Stdout), "close")
		require.True(t, said(r.Stderr, "close", "listening process: exit status 1: goverbs demo: not verified: close"),
			r.Stderr)
	}
	clitest.NothingRuns(t)
}

// TestBreakStep: the name of a step alone breaks all its comparisons, and no other step.
func TestBreakStep(t *testing.T) {
	for _, step := range []string{"connect", "lock", "close"} {
		r := clitest.Run(t, "demo", "--json", "--clients", "2", "--ops", "20", "--break", step)
		require.Equal(t, clitest.Failed, r.Code)
		requireSteps(t, decodeResult(t, r.Stdout), step)
		require.Contains(t, r.Stderr, "step "+step+": ")
		require.Contains(t, r.Stderr, "goverbs demo: not verified: "+step+"\n")
	}
	clitest.NothingRuns(t)
}
