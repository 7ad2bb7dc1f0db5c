// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/testprogram"
)

// start runs a command in its own process group.
func start(words, env []string) (*testprogram.Program, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	// A hanging program may use a processor all the time, so it must die if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return testprogram.Launch(cmd)
}

// outcome waits for a program to exit. It returns an error if the exit status is not 0, or if the
// program is still running at the deadline. A program that was sent SIGTERM may also die from that
// signal.
func outcome(p *testprogram.Program, deadline <-chan time.Time, told bool) error {
	select {
	case <-p.Ended():
	case <-deadline:
		return fmt.Errorf("has not ended: %v", p.Cmd)
	}
	state := p.Cmd.ProcessState
	status, ok := state.Sys().(syscall.WaitStatus)
	byTerm := ok && status.Signaled() && status.Signal() == syscall.SIGTERM
	if state.Success() || told && (byTerm || state.ExitCode() == 128+int(syscall.SIGTERM)) {
		return nil
	}
	return fmt.Errorf("%v: %v", state, p.Cmd)
}
