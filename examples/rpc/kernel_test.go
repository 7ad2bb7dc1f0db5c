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
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, run(ctx, "rxe0", "10.78.0.1:0"))
	require.NoError(t, run(ctx, "siw0", "10.77.0.1:0"))
	require.NoError(t, run(ctx, "ib:rxe0", "10.78.0.1:0"))
}
