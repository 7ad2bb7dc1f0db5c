// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

// Package errname names rdma-core's errnos. It is empty here, because rdma-core exists on Linux
// only.
package errname

import "syscall"

// Of returns "".
func Of(syscall.Errno) string { return "" }
