// SPDX-License-Identifier: BSD-3-Clause

// Package clitest runs the goverbs program in tests of its packages. A test binary that uses it
// calls Main in TestMain.
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

// The program's exit statuses.
const (
	Done   = 0
	Failed = 1
	Usage  = 2
)

// Program is the path of the program under test, which Main builds. In the guest it is prebuilt,
// with cgo.
var Program = os.Getenv("GOVERBS_TEST_COMMAND")

// Main is called by TestMain: it builds the program and runs the tests.
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

// WithLibibverbs reports whether programs of the tests can use libibverbs.
var WithLibibverbs = verbs.RDMACore() == nil

// Build builds the program, with libibverbs if the test itself has it. The revision is left out,
// because git does not report it in a clone that belongs to another user.
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

// Outcome is the result of a run of the program.
type Outcome struct {
	Stdout, Stderr string
	Code           int
	Took           time.Duration
}

// Running is a run in progress. A test can wait for its output.
type Running struct {
	*testprogram.Program
	Stdout, Stderr *testprogram.Output
	Begun          time.Time // when Outcome.Took starts
}

// Start starts the program. The test fails if the program is still running when the test ends.
func Start(t *testing.T, args ...string) *Running {
	t.Helper()
	return StartCommand(t, exec.Command(Program, args...))
}

// StartOn starts the program with stdout connected to a file, and with additional environment
// variables. Running.Stdout stays empty.
func StartOn(t *testing.T, stdout *os.File, env []string, args ...string) *Running {
	t.Helper()
	cmd := exec.Command(Program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout = stdout
	return StartCommand(t, cmd)
}

// StartCommand starts cmd, which is the program, or a shell that becomes the program. The test
// fails if the program is still running when the test ends.
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

// End waits for the program to exit, which must not be due to a signal.
func (r *Running) End(t *testing.T) Outcome {
	t.Helper()
	state := r.Wait(t)
	require.True(t, state.Exited(), "%v", r)
	return Outcome{r.Stdout.String(), r.Stderr.String(), state.ExitCode(), time.Since(r.Begun)}
}

// Run runs the program until it exits.
func Run(t *testing.T, args ...string) Outcome {
	t.Helper()
	return Start(t, args...).End(t)
}

// NothingRuns asserts that no process of the program is left, on systems where that can be found
// out.
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

// Lines splits text that ends in a newline.
func Lines(t *testing.T, s string) []string {
	t.Helper()
	require.True(t, strings.HasSuffix(s, "\n"), "%q", s)
	var out []string
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		out = append(out, sc.Text())
	}
	return out
}
