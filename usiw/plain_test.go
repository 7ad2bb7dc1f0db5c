// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// TestForDevice: the names of a plain NIC select one, which has all operations except those of
// RFC 7306; other names select usiw0.
func TestForDevice(t *testing.T) {
	for _, name := range []string{PlainName, "ib:" + PlainName, "ib:forward:" + PlainName} {
		nic, err := New(ForDevice(name))
		require.NoError(t, err)
		require.Equal(t, PlainName, nic.Device().Name())
		ctx, err := nic.Device().Open()
		require.NoError(t, err)
		require.Zero(t, ctx.Ops()&ext.Operations)
		require.Equal(t, allOps(t)&^ext.Operations, ctx.Ops())
		require.NoError(t, ctx.Close())
		require.NoError(t, nic.Close())
	}
	for _, name := range []string{"", "usiw0", "rxe0", "auto", "ib:usiw0", "usiw0-plain:", "usiw0-plainer",
		PlainName + ":usiw0"} {
		require.Equal(t, Config{}, ForDevice(name), name)
	}
}

// allOps returns the operations of a NIC that lacks none.
func allOps(t *testing.T) verbs.OpSet {
	nic, err := New(Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, nic.Close()) }()
	ctx, err := nic.Device().Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	return ctx.Ops()
}
