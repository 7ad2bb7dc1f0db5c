// SPDX-License-Identifier: BSD-3-Clause

// Package backlog knows how many connections may wait for Accept, as listen(2) does.
package backlog

import (
	"os"
	"strconv"
	"strings"
)

// Limit is the most that a listener keeps: net.core.somaxconn of the network namespace, or 4,096,
// which is its default, where that cannot be read.
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
	maxLimit     = 1 << 16 // a listener has a place for each
)

// Of is the backlog of a program that asks for n: the Limit if that is 0 or more than the Limit.
func Of(n int) int {
	limit := Limit()
	if n == 0 {
		return limit
	}
	return min(n, limit)
}
