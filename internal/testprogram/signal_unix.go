// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package testprogram

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func send(cmd *exec.Cmd, s syscall.Signal) error {
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid {
		// The group outlives the process while it has other members.
		if err := syscall.Kill(-cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
