// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestDeviceByName checks that a name with the prefix returns the wrapped device and one without it
// the device itself, and that other names fail.
func TestDeviceByName(t *testing.T) {
	in, _ := newRoCE(t)
	registered, err := verbs.Register(in.Provider())
	require.NoError(t, err)
	defer verbs.Unregister(registered)

	dev, err := verbs.DeviceByName("roce0")
	require.NoError(t, err)
	require.Same(t, registered, dev)
	dev, err = verbs.DeviceByName("ib:roce0")
	require.NoError(t, err)
	require.Equal(t, "ib:roce0", dev.Name())
	ctx := open(t, dev)
	require.True(t, ctx.Supports(verbs.OpMaskedCmpSwap))
	for _, wrong := range []string{"", "ib:", "ib:none0", "ib:ib:roce0", "roce0:"} {
		_, err = verbs.DeviceByName(wrong)
		require.ErrorIs(t, err, verbs.ErrNoDevice, wrong)
	}
}
