// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commandVariable names the variable that has the path of a goverbs command with cgo.
const commandVariable = "GOVERBS_TEST_COMMAND"

// goverbs returns the path of the goverbs command.
func goverbs(t *testing.T) string {
	t.Helper()
	path := os.Getenv(commandVariable)
	require.NotEmpty(t, path, "%s must be the path of a goverbs command with cgo", commandVariable)
	return path
}

// rping is the beginning of the command line of librdmacm's rping, with line-buffered output.
var rping = []string{"stdbuf", "-oL", "rping"}

// program is a process that the test has started. It is killed at the end of the test if it still runs.
type program struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // standard output and standard error
}

// start runs a command line made of parts.
func start(t *testing.T, parts ...[]string) *program {
	t.Helper()
	line := slices.Concat(parts...)
	p := &program{t: t, name: strings.Join(line, " "), cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	// stdbuf and ip netns exec replace themselves by the program that they start, so there is one process.
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the outcome is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s: %v\n%s", p.name, p.cmd.ProcessState, p.text())
		}
	})
	return p
}

// Write stores the output of the program.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// text returns what the program has printed.
func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// prints waits until the program has printed a text. It must do that before it ends.
func (p *program) prints(text string) {
	p.t.Helper()
	p.until(waitLimit, text)
	require.Contains(p.t, p.text(), text, "%s has not printed that", p.name)
}

// until waits for some time for one of several texts or the program's end.
func (p *program) until(limit time.Duration, texts ...string) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		ended := p.endsWithin(10 * time.Millisecond)
		out := p.text()
		if ended || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(out, text) }) {
			return
		}
	}
}

// endsWithin waits for the end of the program for some time, and reports whether it has ended.
func (p *program) endsWithin(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// ends waits for the program's end and returns its exit status, -1 if a signal ended it.
func (p *program) ends() int {
	p.t.Helper()
	require.True(p.t, p.endsWithin(waitLimit), "has not ended: %s", p.name)
	return p.cmd.ProcessState.ExitCode()
}

// runs requires that the program ends with status 0.
func (p *program) runs() {
	p.t.Helper()
	require.Zero(p.t, p.ends(), p.name)
}

// kill ends the program at once, if it still runs.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
	p.ends()
}
