// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// program is the binary under test, built by TestMain. In the guest it has been built before, with cgo.
var program = os.Getenv("GOVERBS_TEST_COMMAND")

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if program != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "goverbs-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "goverbs")
		if runtime.GOOS == "windows" {
			program += ".exe"
		}
		if err := build(program); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// withLibibverbs: the programs of the tests can use libibverbs.
var withLibibverbs = verbs.RDMACore() == nil

// build builds the program, with libibverbs if the test has it.
func build(path string, flags ...string) error {
	if !withLibibverbs {
		flags = append(flags, "-tags=noibverbs")
	}
	out, err := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), ".")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// outcome is what a run of the program left.
type outcome struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// running is a run in progress. What it writes can be waited for.
type running struct {
	cmd    *exec.Cmd
	stdout *transcript
	stderr *transcript
	begun  time.Time
}

// transcript collects what a process writes.
type transcript struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (tr *transcript) Write(b []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(b)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// await waits until the transcript contains a text and returns all of it.
func (tr *transcript) await(t *testing.T, text string) string {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(tr.String(), text) }, 60*time.Second, 5*time.Millisecond,
		"waiting for %q", text)
	return tr.String()
}

// start starts the program. The test fails if it is left running.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(program, args...), stdout: new(transcript), stderr: new(transcript), begun: time.Now()}
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.cmd.WaitDelay = 10 * time.Second
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
			t.Errorf("goverbs %q was left running", args)
		}
	})
	return r
}

// end waits for the end of the program.
func (r *running) end(t *testing.T) outcome {
	t.Helper()
	err := r.cmd.Wait()
	if r.cmd.ProcessState == nil || r.cmd.ProcessState.ExitCode() < 0 {
		require.NoError(t, err)
	}
	return outcome{r.stdout.String(), r.stderr.String(), r.cmd.ProcessState.ExitCode(), time.Since(r.begun)}
}

// goverbs runs the program to its end.
func goverbs(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, args...).end(t)
}

// nothingRuns asserts that no process of the program is left, where the system tells.
func nothingRuns(t *testing.T) {
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
			if target, err := os.Readlink(link); err == nil && strings.TrimSuffix(target, " (deleted)") == program {
				left = append(left, link)
			}
		}
		return len(left) == 0
	}, 10*time.Second, 10*time.Millisecond, "left: %v", &left)
}

// lines splits a text that ends in a newline.
func lines(t *testing.T, s string) []string {
	t.Helper()
	require.True(t, strings.HasSuffix(s, "\n"), "%q", s)
	var out []string
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		out = append(out, sc.Text())
	}
	return out
}
