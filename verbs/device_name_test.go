// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// layer is a device over another one.
type layer struct {
	verbs.ProviderDevice
	name string
}

func (d layer) Info() verbs.DeviceInfo       { return verbs.DeviceInfo{Name: d.name} }
func (d layer) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

var (
	errMaker = errors.New("the maker fails")
	makes    atomic.Int32 // calls of the maker of made:
)

// The makers of this test binary: made:NAME is a layer over the device NAME.
func init() {
	verbs.RegisterMaker("made:", func(name string) (*verbs.Device, error) {
		makes.Add(1)
		below, err := verbs.DeviceByName(strings.TrimPrefix(name, "made:"))
		if err != nil {
			return nil, err
		}
		return verbs.NewDevice(layer{below.Provider(), name}), nil
	})
	verbs.RegisterMaker("made:fail", func(string) (*verbs.Device, error) { return nil, errMaker })
	verbs.RegisterMaker("made:none", func(string) (*verbs.Device, error) { return nil, verbs.ErrNoDevice })
	verbs.RegisterMaker("made:other", func(string) (*verbs.Device, error) {
		return verbs.NewDevice(named{name: "another"}), nil
	})
}

// TestDeviceByNameMakes: a device is made once, for all who ask for it, and goes with the device
// below it. One that a program has registered stays.
func TestDeviceByNameMakes(t *testing.T) {
	base, err := verbs.Register(named{name: "base0"})
	require.NoError(t, err)
	defer verbs.Unregister(base)
	own, err := verbs.Register(layer{base.Provider(), "own:base0"})
	require.NoError(t, err)
	defer verbs.Unregister(own)
	before := makes.Load()
	const name = "made:made:base0"
	got := make([]*verbs.Device, 8)
	errs := make([]error, len(got))
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i], errs[i] = verbs.DeviceByName(name) })
	}
	all.Wait()
	for i, d := range got {
		require.NoError(t, errs[i])
		require.Same(t, got[0], d)
	}
	require.EqualValues(t, 2, makes.Load()-before, "one call for each device")
	devices, err := verbs.Devices()
	require.NoError(t, err)
	require.Equal(t, []string{"base0", "own:base0", "made:base0", name}, names(devices[len(devices)-4:]))

	verbs.Unregister(verbs.NewDevice(named{name: "base0"}))
	again, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	require.Same(t, got[0], again, "another base0 was meant, which is not registered")

	verbs.Unregister(base)
	devices, err = verbs.Devices()
	require.NoError(t, err)
	require.Contains(t, names(devices), "own:base0")
	for _, gone := range []string{name, "made:base0", "base0"} {
		require.NotContains(t, names(devices), gone)
		_, err = verbs.DeviceByName(gone)
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorContains(t, err, `"base0"`, "the one that is missing")
		require.Equal(t, 1, strings.Count(err.Error(), "DeviceByName"), err.Error())
	}
}

func names(devices []*verbs.Device) (list []string) {
	for _, d := range devices {
		list = append(list, d.Name())
	}
	return list
}

// TestMakerFails: what a maker says is the error, and nothing is registered. The longest prefix
// decides.
func TestMakerFails(t *testing.T) {
	before, err := verbs.Devices()
	require.NoError(t, err)
	_, err = verbs.DeviceByName("made:fail0")
	require.ErrorIs(t, err, errMaker)
	require.NotErrorIs(t, err, verbs.ErrNoDevice)
	_, err = verbs.DeviceByName("made:none0")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, `"made:none0" (`)
	_, err = verbs.DeviceByName("made:other0")
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, `"made:other0"`)
	require.ErrorContains(t, err, `"another"`)
	after, err := verbs.Devices()
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestRegisterMakerTwice: a second maker of a prefix, and one that is none, are mistakes of the
// program.
func TestRegisterMakerTwice(t *testing.T) {
	m := func(string) (*verbs.Device, error) { return nil, verbs.ErrNoDevice }
	require.PanicsWithValue(t, `verbs: RegisterMaker: prefix "made:" is empty or taken, or its maker is nil`,
		func() { verbs.RegisterMaker("made:", m) })
	require.Panics(t, func() { verbs.RegisterMaker("", m) })
	require.Panics(t, func() { verbs.RegisterMaker("nil:", nil) })
}
