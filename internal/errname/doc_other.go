// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

// Package errname names errnos of rdma-core, which is there on Linux only.
package errname

import "syscall"

// Of returns "".
func Of(syscall.Errno) string { return "" }
