// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package usiw

import "runtime"

// yielder lets other goroutines run.
type yielder struct{}

func (*yielder) yield() { runtime.Gosched() }

func (*yielder) close() {}
