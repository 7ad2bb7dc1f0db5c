// SPDX-License-Identifier: BSD-3-Clause

// Package module is the subject of vmexec's self-test, in a separate module.
package module

func half(n int) int { return n / 2 }
