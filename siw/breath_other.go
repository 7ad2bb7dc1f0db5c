// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package siw

import "runtime"

// breather lets other goroutines run.
type breather struct{}

func (*breather) breathe() { runtime.Gosched() }

func (*breather) close() {}
