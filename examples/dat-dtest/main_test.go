// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// output is what the program prints on every device.
//
//go:embed testdata/output.txt
var output string

func requireOutput(t *testing.T, device, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, config{device: device, address: address}), "%s:\n%s", device, &out)
	require.Equal(t, output, out.String(), device)
}

func TestOutput(t *testing.T) {
	requireOutput(t, "ib:usiw0", "127.0.0.1")
	requireOutput(t, "ib:usiw0-plain", "")
}

func TestKernelOutput(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	requireOutput(t, "ib:rxe0", "")
	requireOutput(t, "ib:siw0", "10.77.0.1")
}
