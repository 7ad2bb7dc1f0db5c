// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// bare is a device without a connection manager.
type bare struct{ verbs.ProviderDevice }

func (bare) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Name: "bare0", Provider: "none"} }

// TestNoDevice: the error lists the devices that could have been chosen.
func TestNoDevice(t *testing.T) {
	noKernel(t)
	ctx := context.Background()
	_, err := cm.Resolve(ctx, "127.0.0.1:1", cm.Config{Device: new(verbs.Device)})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "127.0.0.1:1")

	_, err = cm.Resolve(ctx, "127.0.0.1:1", cm.Config{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "looked at: none")

	dev, err := verbs.Register(bare{})
	require.NoError(t, err)
	defer verbs.Unregister(dev)
	_, err = cm.Resolve(ctx, "127.0.0.1:1", cm.Config{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "looked at: bare0")
	require.Equal(t, 1, strings.Count(err.Error(), verbs.ErrNoDevice.Error()), err.Error())
	_, err = cm.Listen(ctx, "127.0.0.1:0", cm.Config{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "bare0", "the error names the devices looked at")
}
