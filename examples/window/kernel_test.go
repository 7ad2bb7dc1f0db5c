// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// The same program on devices of the kernel.
func TestKernelDevices(t *testing.T) {
	for _, c := range []struct{ below, device, listen string }{{"rxe0", "ib:rxe0", "10.78.0.1:0"}, {"siw0", "ib:siw0", "10.77.0.1:0"}} {
		rdmatest.KernelDevice(t, c.below)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, run(ctx, c.device, c.listen), c.device)
	}
}
