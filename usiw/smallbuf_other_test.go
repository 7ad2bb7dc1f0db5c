// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package usiw_test

import "syscall"

// smallBuffers does nothing where the size of the receive buffer cannot be set in this way.
func smallBuffers(_, _ string, _ syscall.RawConn) error { return nil }
