// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package siw_test

import "testing"

// againWithIPv6 is for a test that has found that the host has no ::1: only Linux makes one.
func againWithIPv6(t *testing.T, why error) { lacks(t, why.Error()) }
