// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

// Package errname names the errnos of rdma-core's calls as the manual pages do.
package errname

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the name of an errno, for example "EINVAL", or "" if it has none.
func Of(e syscall.Errno) string {
	if e == syscall.EOPNOTSUPP {
		return "EOPNOTSUPP" // not its alias ENOTSUP
	}
	return unix.ErrnoName(e)
}
