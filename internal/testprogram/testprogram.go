// SPDX-License-Identifier: BSD-3-Clause

// Package testprogram runs a program beside a test: the test waits for what the program writes and
// for its end, and sends it signals. No wait is longer than Limit, and every error shows what the
// program has written.
package testprogram

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Limit is how long a test waits for what a program must do. The processor of the guest may be
// emulated.
const Limit = 3 * time.Minute

// lateOutput is how long after the end of a program the output of processes that it has left behind
// is collected.
const lateOutput = 10 * time.Second

// Program is a process. All its methods may be called by several goroutines.
type Program struct {
	// for its arguments and its Process. It is waited for, so do not call Wait; ProcessState is set
	// when it has ended
	Cmd *exec.Cmd
	Out *Output // what it writes to stdout, and to stderr unless it was started by StartApart
	Err *Output // what it writes to stderr

	ended chan struct{} // closed when it has ended and its output is complete
}

// Start starts a program. At the end of the test it is killed if it still runs, and the log of a
// failed test gets its output.
func Start(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p, err := Launch(cmd)
	return p.belongsTo(t, err)
}

// StartApart is Start with an Output of its own for stderr.
func StartApart(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p := newProgram(cmd)
	p.Err = &Output{program: p}
	return p.belongsTo(t, p.launch())
}

// Launch starts a program that the caller kills. If the command has SysProcAttr.Setpgid, signals go
// to its process group. A Stdout or Stderr that the command has already is left to it.
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

// Ended is closed when the program has ended and its output is complete.
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

// EndsWithin waits for the end of the program for some time, and reports whether it has ended.
func (p *Program) EndsWithin(d time.Duration) bool {
	select {
	case <-p.ended:
	case <-time.After(d):
	}
	return p.HasEnded()
}

// Wait waits for the end of the program.
func (p *Program) Wait(t testing.TB) *os.ProcessState {
	t.Helper()
	if err := p.wait(Limit); err != nil {
		t.Fatal(err)
	}
	return p.Cmd.ProcessState
}

// Ends waits for the end of the program, which must have this exit status.
func (p *Program) Ends(t testing.TB, status int) {
	t.Helper()
	if state := p.Wait(t); state.ExitCode() != status {
		t.Fatalf("ended with %v, not with exit status %d: %v", state, status, p)
	}
}

// Signal sends a signal to the program, or to its process group if it has one of its own. If it has
// ended, that is no error.
func (p *Program) Signal(s syscall.Signal) error { return send(p.Cmd, s) }

// Kill kills the program if it still runs, and waits for its end.
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

// String returns the command, how it ended, and what it has written.
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
