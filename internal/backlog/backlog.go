// SPDX-License-Identifier: BSD-3-Clause

// Package backlog determines how many connections may wait for Accept, following listen(2).
package backlog

import (
	"os"
	"strconv"
	"strings"
)

// Limit returns the largest backlog of a listener: net.core.somaxconn of the network namespace, or
// its default of 4,096 where it cannot be read.
func Limit() int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return defaultLimit
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 {
		return min(n, maxLimit)
	}
	return defaultLimit
}

const (
	defaultLimit = 4096
	maxLimit     = 1 << 16 // a listener allocates a place for each
)

// Of returns the backlog for a program that asks for n: n, or the Limit if n is 0 or exceeds it.
func Of(n int) int {
	limit := Limit()
	if n == 0 {
		return limit
	}
	return min(n, limit)
}
