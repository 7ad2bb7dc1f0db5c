// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// The same program on kernel devices: rxe supports the operation, siw does not.
func TestKernelDevices(t *testing.T) {
	rdmatest.KernelProgram(t, run, map[string]error{"siw0": verbs.ErrNotSupported}, "rxe0", "siw0")
}
