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

// start runs a command in a process group of its own.
func start(words, env []string) (*testprogram.Program, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	// One that hangs may use a processor all the time, so it must not outlive a test that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return testprogram.Launch(cmd)
}

// outcome waits for the end and returns an error if it was not a good one. Of a program that was told to end by SIGTERM, that
// signal is good too. One that has not ended at the deadline fails.
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
