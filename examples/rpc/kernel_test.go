// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// The same program on kernel devices.
func TestKernelDevices(t *testing.T) {
	rdmatest.KernelProgram(t, run, nil, "rxe0", "siw0", "ib:rxe0")
}
