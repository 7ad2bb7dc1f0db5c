// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program is a process that a test has started, with those that it has started itself.
type program struct {
	line string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// start runs a command in a process group of its own.
func start(words, env []string) (*program, error) {
	p := &program{line: strings.Join(words, " "), cmd: exec.Command(words[0], words[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	// One that hangs may use a processor all the time, so it must not outlive a test that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = 5 * time.Second // for output of what it leaves behind
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the outcome is in ProcessState
		close(p.done)
	}()
	return p, nil
}

// Write stores the output.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// text returns what it has printed.
func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// signal sends a signal to the process and those that it has started.
func (p *program) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

// kill ends it at once.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ended reports whether it has ended.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// outcome waits for the end and returns an error if it was not a good one. Of a program that was told to end by SIGTERM, that
// signal is good too. One that has not ended at the deadline fails.
func (p *program) outcome(deadline <-chan time.Time, told bool) error {
	select {
	case <-p.done:
	case <-deadline:
		return fmt.Errorf("has not ended: %s", p.line)
	}
	state := p.cmd.ProcessState
	status, ok := state.Sys().(syscall.WaitStatus)
	byTerm := ok && status.Signaled() && status.Signal() == syscall.SIGTERM
	if state.Success() || told && (byTerm || state.ExitCode() == 128+int(syscall.SIGTERM)) {
		return nil
	}
	return fmt.Errorf("%v: %s", state, p.line)
}
