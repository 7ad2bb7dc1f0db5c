// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package usiw

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// reuseAddr lets a socket use a local port that other connections use, or used until recently.
func reuseAddr(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(err, os.NewSyscallError("setsockopt", set))
}
