// SPDX-License-Identifier: BSD-3-Clause

// Package module is what the self-test of vmexec tests, in a module of its own.
package module

func half(n int) int { return n / 2 }
