// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package rdmatest

import "testing"

// AgainWithIPv6 is for a test that has found that the host has no ::1: only Linux makes one.
func AgainWithIPv6(t *testing.T, why error) {
	t.Helper()
	Lacks(t, why.Error())
}
