// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// named is a device of which nothing but its name is asked.
type named struct {
	verbs.ProviderDevice // not called
	name                 string
}

func (d named) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Name: d.name} }

// TestRegister: the registered devices come last, in their order; a name belongs to one device.
func TestRegister(t *testing.T) {
	before, err := verbs.Devices()
	require.NoError(t, err)
	first, err := verbs.Register(named{name: "reg1"})
	require.NoError(t, err)
	defer verbs.Unregister(first)
	second, err := verbs.Register(named{name: "reg0"})
	require.NoError(t, err)
	defer verbs.Unregister(second)
	devices, err := verbs.Devices()
	require.NoError(t, err)
	require.Len(t, devices, len(before)+2)
	require.Same(t, first, devices[len(before)])
	require.Same(t, second, devices[len(before)+1])

	_, err = verbs.Register(named{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	taken := []string{"reg0", "reg1"}
	for _, d := range before { // those of the kernel, too
		taken = append(taken, d.Name())
	}
	for _, name := range taken {
		_, err = verbs.Register(named{name: name})
		require.ErrorIs(t, err, verbs.ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}

	// A device that was not registered is no other one's namesake.
	verbs.Unregister(verbs.NewDevice(named{name: "reg1"}))
	got, err := verbs.DeviceByName("reg1")
	require.NoError(t, err)
	require.Same(t, first, got)
	verbs.Unregister(first)
	_, err = verbs.DeviceByName("reg1")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, `"reg1"`)
	require.ErrorContains(t, err, "present: ")
	require.ErrorContains(t, err, "reg0")
	again, err := verbs.Register(named{name: "reg1"})
	require.NoError(t, err)
	verbs.Unregister(again)
}

// TestNoDevice: nil, and a Device that no provider made.
func TestNoDevice(t *testing.T) {
	for _, d := range []*verbs.Device{nil, new(verbs.Device)} {
		require.Empty(t, d.Name())
		require.Nil(t, d.Provider())
		_, err := d.Open()
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		_, err = d.SharedContext()
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.NoError(t, d.CloseShared())
	}
}

// TestSharedContext: it is one, nobody's Close ends it, and CloseShared makes room for the next
// one.
func TestSharedContext(t *testing.T) {
	dev := verbs.NewDevice(&gidDevice{})
	require.NoError(t, dev.CloseShared(), "there is none yet")
	first, err := dev.SharedContext()
	require.NoError(t, err)
	again, err := dev.SharedContext()
	require.NoError(t, err)
	require.Same(t, first, again)
	require.ErrorIs(t, first.Close(), verbs.ErrBusy)
	_, err = first.GIDs(1)
	require.NoError(t, err, "it is open")
	require.NoError(t, dev.CloseShared())
	require.NoError(t, dev.CloseShared(), "it is closed")
	_, err = first.GIDs(1)
	require.ErrorIs(t, err, verbs.ErrClosed)
	next, err := dev.SharedContext()
	require.NoError(t, err)
	require.NotSame(t, first, next)
	_, err = next.GIDs(1)
	require.NoError(t, err)
	require.NoError(t, dev.CloseShared())
}
