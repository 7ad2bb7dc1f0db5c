// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestChannelRelease: a released channel wakes who waits and takes no more CQs, and closes with the
// last that it has.
func TestChannelRelease(t *testing.T) {
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, nic.Close()) }()
	ctx, err := nic.Device().Open()
	require.NoError(t, err)
	for _, cqs := range []int{0, 1, 3} {
		ch, err := ctx.CreateCompChannel()
		require.NoError(t, err)
		var made []*verbs.CQ
		for range cqs {
			cq, err := ctx.CreateCQ(verbs.CQConfig{Channel: ch})
			require.NoError(t, err)
			made = append(made, cq)
		}
		waited := make(chan error, 1)
		go func() { _, err := ch.Wait(t.Context()); waited <- err }()
		for range 2 {
			require.NoError(t, ch.Release())
		}
		require.ErrorIs(t, <-waited, verbs.ErrClosed)
		_, err = ch.Wait(t.Context())
		require.ErrorIs(t, err, verbs.ErrClosed)
		_, err = ctx.CreateCQ(verbs.CQConfig{Channel: ch})
		require.ErrorIs(t, err, verbs.ErrClosed)
		for i, cq := range made {
			require.ErrorIs(t, ch.Close(), verbs.ErrBusy, "%d of %d CQs", i, cqs)
			require.NoError(t, cq.ReqNotify(false))
			require.NoError(t, cq.Close())
		}
		require.NoError(t, ch.Close())
	}
	require.NoError(t, (*verbs.CompChannel)(nil).Release())
	require.NoError(t, ctx.Close(), "the channels have closed")
}
