// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func Example() {
	main()
	// Output:
	// 60 changes under the lock, none lost
	// a change with token 60 was refused: the record has one with token 61
}

// The program is the same on every device that supports the atomics, and on every ib: device.
func TestDevices(t *testing.T) {
	for _, device := range []string{"ib:usiw0", "ib:usiw0-plain"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, run(ctx, device, "127.0.0.1:0"), device)
	}
	require.ErrorIs(t, run(t.Context(), "usiw0-plain", "127.0.0.1:0"), verbs.ErrNotSupported)
}
