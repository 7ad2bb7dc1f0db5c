// SPDX-License-Identifier: BSD-3-Clause

// Package testprogram runs a program alongside a test, which waits for its output, sends it signals
// and waits for it to exit. No wait exceeds Limit, and every error includes the program's output.
package testprogram

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Limit is how long a test waits for the program. It is generous because the guest's processor may
// be emulated.
const Limit = 3 * time.Minute

// lateOutput is how long the output of processes that outlive the program is collected after it
// exits.
const lateOutput = 10 * time.Second

// Program is a process. Its methods may be called concurrently.
type Program struct {
	// for its arguments and Process; do not call Wait, which this package does. ProcessState is set
	// once the program has ended
	Cmd *exec.Cmd
	Out *Output // its stdout, and its stderr unless it was started by StartApart
	Err *Output // its stderr

	ended chan struct{} // closed when the program has ended and its output is complete
}

// Start starts a program. If it is still running at the end of the test it is killed. The log of a
// failed test includes its output.
func Start(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p, err := Launch(cmd)
	return p.belongsTo(t, err)
}

// StartApart is Start with a separate Output for stderr.
func StartApart(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p := newProgram(cmd)
	p.Err = &Output{program: p}
	return p.belongsTo(t, p.launch())
}

// Launch starts a program that the caller must kill. If the command sets SysProcAttr.Setpgid,
// signals go to its process group. A Stdout or Stderr that the command already has is left as it
// is.
func Launch(cmd *exec.Cmd) (*Program, error) {
	p := newProgram(cmd)
	return p, p.launch()
}

func newProgram(cmd *exec.Cmd) *Program {
	p := &Program{Cmd: cmd, ended: make(chan struct{})}
	p.Out = &Output{program: p}
	p.Err = p.Out
	return p
}

func (p *Program) launch() error {
	if p.Cmd.Stdout == nil {
		p.Cmd.Stdout = p.Out
	}
	if p.Cmd.Stderr == nil {
		p.Cmd.Stderr = p.Err
	}
	p.Cmd.WaitDelay = lateOutput
	if err := p.Cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.Cmd.Wait() // the outcome is in ProcessState
		close(p.ended)
	}()
	return nil
}

func (p *Program) belongsTo(t testing.TB, err error) *Program {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Log(p)
		}
	})
	return p
}

// Ended returns a channel that is closed when the program has ended and its output is complete.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// HasEnded reports whether the program has ended.
func (p *Program) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// EndsWithin waits up to d for the program to end, and reports whether it did.
func (p *Program) EndsWithin(d time.Duration) bool {
	select {
	case <-p.ended:
	case <-time.After(d):
	}
	return p.HasEnded()
}

// Wait waits for the program to end.
func (p *Program) Wait(t testing.TB) *os.ProcessState {
	t.Helper()
	if err := p.wait(Limit); err != nil {
		t.Fatal(err)
	}
	return p.Cmd.ProcessState
}

// Ends waits for the program to end, which must be with the given exit status.
func (p *Program) Ends(t testing.TB, status int) {
	t.Helper()
	if state := p.Wait(t); state.ExitCode() != status {
		t.Fatalf("ended with %v, not with exit status %d: %v", state, status, p)
	}
}

// Signal sends a signal to the program, or to its own process group if it has one. Signalling a
// program that has ended is no error.
func (p *Program) Signal(s syscall.Signal) error { return send(p.Cmd, s) }

// Kill kills the program if it is still running, and waits for it to end.
func (p *Program) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill: %w: %v", err, p)
	}
	return p.wait(Limit)
}

func (p *Program) wait(limit time.Duration) error {
	if !p.EndsWithin(limit) {
		return fmt.Errorf("has not ended: %v", p)
	}
	return nil
}

// String returns the command, how it ended, and its output.
func (p *Program) String() string {
	how := "runs"
	if p.HasEnded() {
		how = p.Cmd.ProcessState.String()
	}
	text := fmt.Sprintf("%v: %s\n%s", p.Cmd, how, p.Out.String())
	if p.Err != p.Out {
		text += "stderr: " + p.Err.String()
	}
	return text
}
