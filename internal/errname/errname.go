// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

// Package errname names the errnos of rdma-core's calls as the manual pages do.
package errname

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns for example "EINVAL", and "" for a number that has no name.
func Of(e syscall.Errno) string {
	if e == syscall.EOPNOTSUPP {
		return "EOPNOTSUPP" // and not its alias ENOTSUP
	}
	return unix.ErrnoName(e)
}
