// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestOneCompVector: the device has one completion vector and no extended attributes.
func TestOneCompVector(t *testing.T) {
	ctx := open(t, newNIC(t, usiw.Config{}))
	attr, err := ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, 1, attr.NumCompVectors)
	_, err = ctx.CreateCQ(verbs.CQConfig{CompVector: 0})
	require.NoError(t, err)
	_, err = ctx.CreateCQ(verbs.CQConfig{CompVector: 1})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "completion vector 1")
	ex, err := ctx.QueryDeviceEx()
	require.NoError(t, err)
	require.Zero(t, ex)
	require.NoError(t, ctx.CloseAll())
	_, err = ctx.QueryDeviceEx()
	require.ErrorIs(t, err, verbs.ErrClosed)
}
