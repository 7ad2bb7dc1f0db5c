// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDevicesNotListed: if the kernel's devices cannot be listed, neither a list without them nor
// "no such device" is the answer; but devices that are not the kernel's are found. A kernel without
// RDMA is no failure: it has none.
func TestDevicesNotListed(t *testing.T) {
	fakeverbs.Start(t)
	own, err := verbs.Register(named{name: "own0"})
	require.NoError(t, err)
	defer verbs.Unregister(own)

	fakeverbs.Fail("ibv_get_device_list", 1, syscall.EIO)
	devices, err := verbs.Devices()
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "ibv_get_device_list")
	require.Nil(t, devices)
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.ENOMEM)
	_, err = verbs.DeviceByName("fake0")
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.NotErrorIs(t, err, verbs.ErrNoDevice)
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.ENOMEM)
	found, err := verbs.DeviceByName("own0")
	require.NoError(t, err, "which device has the name does not depend on the list")
	require.Same(t, own, found)
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.ENOMEM)
	found, err = verbs.DeviceByName("made:own0")
	require.NoError(t, err)
	require.Equal(t, "made:own0", found.Name())
	verbs.Unregister(found)
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.EIO)
	fake, err := verbs.Register(named{name: "fake0"})
	require.NoError(t, err, "the kernel's devices do not count as having the name")
	verbs.Unregister(fake)

	for _, none := range []syscall.Errno{syscall.ENOSYS, syscall.ENODEV, syscall.ENOENT} {
		fakeverbs.Fail("ibv_get_device_list", 1, none)
		devices, err = verbs.Devices()
		require.NoError(t, err)
		require.Equal(t, []*verbs.Device{own}, devices, "%v", none)
		fakeverbs.Fail("ibv_get_device_list", 1, none)
		_, err = verbs.DeviceByName("fake0")
		require.ErrorIs(t, err, verbs.ErrNoDevice)
	}
	_, err = verbs.DeviceByName("fake0")
	require.NoError(t, err)
}
