// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// The same program on devices of the kernel: rxe has the operation, siw does not.
func TestKernelDevices(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, run(ctx, "rxe0", "10.78.0.1:0"))
	require.ErrorIs(t, run(ctx, "siw0", "10.77.0.1:0"), verbs.ErrNotSupported)
}
