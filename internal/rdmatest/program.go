// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kernelListen is where a program on each kernel device listens in the guest of testbed/.
var kernelListen = map[string]string{"rxe0": "10.78.0.1:0", "siw0": "10.77.0.1:0"}

// KernelProgram runs the main function of an example on kernel devices, each in a subtest and named
// as for --device ("siw0", "ib:siw0"). If the device is absent, the subtest is skipped or fails as
// KernelDevice describes. The error must match wants[device] by errors.Is, and be nil if the map
// has no entry.
func KernelProgram(t *testing.T, run func(ctx context.Context, device, listen string) error, wants map[string]error,
	devices ...string) {
	t.Helper()
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			below := strings.TrimPrefix(device, "ib:")
			KernelDevice(t, below)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if want := wants[device]; want != nil {
				require.ErrorIs(t, run(ctx, device, kernelListen[below]), want)
			} else {
				require.NoError(t, run(ctx, device, kernelListen[below]))
			}
		})
	}
}
