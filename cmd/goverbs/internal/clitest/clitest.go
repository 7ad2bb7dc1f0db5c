// SPDX-License-Identifier: BSD-3-Clause

// Package clitest runs the goverbs program in tests of its parts. The directory of such a test
// binary has Main for its TestMain.
package clitest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/verbs"
)

// The exit statuses of the program.
const (
	Done   = 0
	Failed = 1
	Usage  = 2
)

// Program is the program under test, built by Main. In the guest it has been built before, with
// cgo.
var Program = os.Getenv("GOVERBS_TEST_COMMAND")

// Main is what a TestMain calls: it builds the program and runs the tests.
func Main(m *testing.M) int {
	if Program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "goverbs-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Program = filepath.Join(dir, "goverbs")
	if runtime.GOOS == "windows" {
		Program += ".exe"
	}
	if err := Build(Program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// WithLibibverbs: the programs of the tests can use libibverbs.
var WithLibibverbs = verbs.RDMACore() == nil

// Build builds the program, with libibverbs if the test has it. The revision is left out, because
// git does not tell it in a clone that belongs to another user.
func Build(path string, flags ...string) error {
	if !WithLibibverbs {
		flags = append(flags, "-tags=noibverbs")
	}
	args := append(append([]string{"build", "-buildvcs=false", "-o", path}, flags...), "github.com/goverbs/goverbs/cmd/goverbs")
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// Outcome is what a run of the program left.
type Outcome struct {
	Stdout, Stderr string
	Code           int
	Took           time.Duration
}

// Running is a run in progress. What it writes can be waited for.
type Running struct {
	*testprogram.Program
	Stdout, Stderr *testprogram.Output
	Begun          time.Time // from when Outcome.Took counts
}

// Start starts the program. The test fails if it is left running.
func Start(t *testing.T, args ...string) *Running {
	t.Helper()
	return StartCommand(t, exec.Command(Program, args...))
}

// StartOn starts the program with stdout on a file, and with further variables in its environment.
// Stdout of the Running stays empty.
func StartOn(t *testing.T, stdout *os.File, env []string, args ...string) *Running {
	t.Helper()
	cmd := exec.Command(Program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout = stdout
	return StartCommand(t, cmd)
}

// StartCommand starts the program, or a shell that becomes the program, as a command says. The test
// fails if it is left running.
func StartCommand(t *testing.T, cmd *exec.Cmd) *Running {
	t.Helper()
	begun := time.Now()
	p := testprogram.StartApart(t, cmd)
	t.Cleanup(func() {
		if !p.HasEnded() {
			t.Errorf("%q was left running", cmd.Args)
		}
	})
	return &Running{Program: p, Stdout: p.Out, Stderr: p.Err, Begun: begun}
}

// End waits for the end of the program, which no signal may cause.
func (r *Running) End(t *testing.T) Outcome {
	t.Helper()
	state := r.Wait(t)
	require.True(t, state.Exited(), "%v", r)
	return Outcome{r.Stdout.String(), r.Stderr.String(), state.ExitCode(), time.Since(r.Begun)}
}

// Run runs the program to its end.
func Run(t *testing.T, args ...string) Outcome {
	t.Helper()
	return Start(t, args...).End(t)
}

// NothingRuns asserts that no process of the program is left, where the system tells.
func NothingRuns(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	var left []string
	require.Eventually(t, func() bool {
		left = left[:0]
		links, err := filepath.Glob("/proc/[0-9]*/exe")
		require.NoError(t, err)
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.TrimSuffix(target, " (deleted)") == Program {
				left = append(left, link)
			}
		}
		return len(left) == 0
	}, 10*time.Second, 10*time.Millisecond, "left: %v", &left)
}

// Lines splits a text that ends in a newline.
func Lines(t *testing.T, s string) []string {
	t.Helper()
	require.True(t, strings.HasSuffix(s, "\n"), "%q", s)
	var out []string
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		out = append(out, sc.Text())
	}
	return out
}
