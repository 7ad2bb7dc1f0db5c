// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/testbed/handles"
	"github.com/goverbs/goverbs/verbs"
)

// TestHandles uses and closes handles in the wrong order in Go, and checks that C still sees the
// right order: no object is used after it is destroyed, or destroyed before its users.
func TestHandles(t *testing.T) {
	for device, listen := range map[string]string{"fake0": "192.0.2.1:0", "fake1": "198.51.100.1:0"} {
		t.Run(device, func(t *testing.T) {
			fakeverbs.Start(t)
			fakeverbs.Loopback(true)
			dev, err := verbs.DeviceByName(device)
			require.NoError(t, err)
			handles.Run(t, dev, listen)
		})
	}
}
