// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package rdmatest

import "testing"

// AgainWithIPv6 is called by a test that found no ::1 on the host. Only Linux can create one.
func AgainWithIPv6(t *testing.T, why error) {
	t.Helper()
	Lacks(t, why.Error())
}
