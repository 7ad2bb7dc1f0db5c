// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package testprogram

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func send(cmd *exec.Cmd, s syscall.Signal) error {
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
