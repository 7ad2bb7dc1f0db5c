// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// plainMade is whether TestDeviceByName has run before in this process.
var plainMade bool

// TestDeviceByName: importing the package lists no device. The names make devices when they are
// first asked for, by several at once too, and each makes one. The plain NIC has all operations but
// those of RFC 7306. That nothing of it runs at the end of the tests, see TestMain.
func TestDeviceByName(t *testing.T) {
	listed := func() (names []string) {
		devices, err := verbs.Devices()
		require.NoError(t, err)
		for _, d := range devices {
			names = append(names, d.Name())
		}
		return names
	}
	ops := func(d *verbs.Device) verbs.OpSet {
		ctx, err := d.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, ctx.Close()) }()
		return ctx.Ops()
	}
	const plain = "usiw0-plain"
	if !plainMade {
		require.NotContains(t, listed(), plain)
	}
	plainMade = true
	var all sync.WaitGroup
	got := make([]*verbs.Device, 8)
	errs := make([]error, len(got))
	for i := range got {
		all.Go(func() { got[i], errs[i] = verbs.DeviceByName(plain) })
	}
	all.Wait()
	for i, d := range got {
		require.NoError(t, errs[i])
		require.Same(t, got[0], d)
	}
	require.Contains(t, listed(), plain)
	require.Equal(t, plain, got[0].Name())
	full, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	require.Equal(t, ops(full.Device())&^ext.Operations, ops(got[0]))
	require.NoError(t, full.Close())

	_, err = usiw.Register(usiw.Config{Name: plain})
	require.ErrorIs(t, err, verbs.ErrInvalid, "the name belongs to that device")
	for _, name := range []string{"usiw", "usiw7", plain + "er", "usiw0-plain:", plain + ":usiw0"} {
		_, err := verbs.DeviceByName(name)
		require.ErrorIs(t, err, verbs.ErrNoDevice, name)
		require.ErrorContains(t, err, "package usiw makes usiw0 and usiw0-plain")
		require.ErrorContains(t, err, "present: ")
	}
}
