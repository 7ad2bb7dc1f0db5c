// SPDX-License-Identifier: BSD-3-Clause

package main

import "syscall"

// read reads without waiting.
func read(fd uintptr, b []byte) (n int, err error) { return syscall.Read(int(fd), b) }

// nothingYet reports whether err means that nothing is available yet.
func nothingYet(err error) bool { return err == syscall.EAGAIN }
