// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package forward_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/testbed/handles"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// fakes are the two devices of the fake libraries: one that follows InfiniBand, one that is like
// kernel siw. The subjects are those in which the drivers of the kernel agree.
var fakes = []struct {
	name, listen string
	subjects     []string
}{
	{"fake0", "192.0.2.1:0", []string{"Device", "GID", "PD", "Order", "List", "UC", "UD", "AH", "Foreign", "Alloc"}},
	{"fake1", "198.51.100.1:0",
		[]string{"GID", "PD", "Memory", "Immediate", "MW", "MW1", "Invalidate", "Order", "List", "Channel",
			"Limits", "Foreign", "Disconnect", "Alloc"}},
}

// fake returns one of them, wrapped a number of times, over loopback.
func fake(t *testing.T, name string, times int) (wrapped, bare *verbs.Device) {
	t.Helper()
	fakeverbs.Start(t)
	fakeverbs.Loopback(true)
	bare, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bare.CloseShared()) })
	wrapped = bare
	for range times {
		wrapped = wrap(t, wrapped)
	}
	return wrapped, bare
}

// hideFakes hides both.
func hideFakes(t *testing.T) {
	t.Helper()
	fakeverbs.Start(t)
	fakeverbs.SetHidden(fakeverbs.Fake0, true)
	fakeverbs.SetHidden(fakeverbs.Fake1, true)
}

// TestVerbsKernel runs the suite through the provider over libibverbs and the connection manager
// over librdmacm.
func TestVerbsKernel(t *testing.T) {
	for _, c := range fakes {
		t.Run(c.name, func(t *testing.T) {
			wrapped, bare := fake(t, c.name, 1)
			verbstest.RunSubjects(t, func(*testing.T) verbstest.Fabric {
				return verbstest.Fabric{Active: wrapped, Passive: wrapped, Listen: c.listen,
					Others: []*verbs.Device{bare}}
			}, c.subjects...)
		})
	}
}

// TestHandles: used in the wrong order, handles of the wrapping device do no harm below.
func TestHandles(t *testing.T) {
	for _, c := range fakes {
		t.Run(c.name, func(t *testing.T) {
			wrapped, _ := fake(t, c.name, 1)
			handles.Run(t, wrapped, c.listen)
		})
	}
}

// TestUnwrapIsEnoughKernel: librdmacm connects a device that has Unwrap, whatever its name, also
// with QPs that wrap the kernel's.
func TestUnwrapIsEnoughKernel(t *testing.T) {
	for _, c := range fakes {
		t.Run(c.name, func(t *testing.T) {
			_, bare := fake(t, c.name, 0)
			for _, dev := range []*verbs.Device{verbs.NewDevice(renamed{bare.Provider()}), newUnmanaged(t, bare)} {
				verbstest.RunSubjects(t, func(*testing.T) verbstest.Fabric {
					return verbstest.Fabric{Active: dev, Passive: dev, Listen: c.listen}
				}, "Order", "UD", "Foreign")
			}
		})
	}
}

// TestSRQWithoutQuery: a device can have shared receive queues that it cannot be asked about, as
// siw has. The sizes of one are known from when it was made.
func TestSRQWithoutQuery(t *testing.T) {
	wrapped, bare := fake(t, "fake1", 2)
	var attrs []verbs.SRQAttr
	for _, dev := range []*verbs.Device{bare, wrapped} {
		ctx, err := dev.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, ctx.CloseAll()) }()
		pd, err := ctx.AllocPD()
		require.NoError(t, err)
		fakeverbs.Fail("ibv_query_srq", 1, syscall.EOPNOTSUPP)
		s, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: 33, MaxSGE: 2})
		require.NoError(t, err)
		attrs = append(attrs, s.Attr())
		_, err = s.Query()
		require.ErrorIs(t, err, verbs.ErrNotSupported)
	}
	require.GreaterOrEqual(t, attrs[0].MaxWR, 33)
	require.GreaterOrEqual(t, attrs[0].MaxSGE, 2)
	require.Equal(t, attrs[0], attrs[1])
}

// TestAttributesKernel: extended attributes and the vectors of completions are those of the device
// below.
func TestAttributesKernel(t *testing.T) {
	fakeverbs.Start(t)
	a := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	a.NumCompVectors = 4
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, a)
	fakeverbs.SetExtended(fakeverbs.Fake0, 7)
	bare, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	ctx, err := wrap(t, wrap(t, bare)).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	ex, err := ctx.QueryDeviceEx()
	require.NoError(t, err)
	require.EqualValues(t, 8, ex.HCACoreClock)
	_, err = ctx.CreateCQ(verbs.CQConfig{CompVector: 3})
	require.NoError(t, err)
	require.EqualValues(t, 3, fakeverbs.Args("ibv_create_cq")[4])
	_, err = ctx.CreateCQ(verbs.CQConfig{CompVector: 4})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}
