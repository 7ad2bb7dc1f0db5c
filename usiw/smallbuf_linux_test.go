// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// smallBuffers gives a socket buffers of about 4 KiB. They are set before the connection is made:
// if a receive buffer shrinks below an announced window, Linux drops arriving segments and falls
// back to its timers.
func smallBuffers(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
	}); e != nil {
		return e
	}
	return err
}
