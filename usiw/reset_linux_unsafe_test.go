// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package usiw

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// reset makes the kernel abort the connection: connect(2) to AF_UNSPEC dissolves it.
func (s *side) reset() error {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	fd := uintptr(s.conn.s.(*tcpStream).fd)
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&none)),
		unsafe.Sizeof(none)); errno != 0 {
		return errno
	}
	return nil
}
