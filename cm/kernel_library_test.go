// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestTooOldLibrary: calls that need librdmacm return an error that says why it cannot be used.
func TestTooOldLibrary(t *testing.T) {
	if !fakeverbs.InProcessWithout(t, "rdma_establish") {
		return
	}
	fakeverbs.Start(t)
	defer func() { require.NoError(t, device(t, "fake0").CloseShared()) }()
	err := cm.RDMACore()
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "library librdmacm.so.1 is too old: it has no rdma_establish")
	require.NoError(t, verbs.RDMACore())
	for _, dev := range []*verbs.Device{device(t, "fake0"), nil} {
		_, err := cm.Resolve(soon(t), "192.0.2.1:1", cm.Config{Device: dev})
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorContains(t, err, "library librdmacm.so.1 is too old: it has no rdma_establish")
		_, err = cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Device: dev})
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorContains(t, err, "librdmacm.so.1")
	}
}
