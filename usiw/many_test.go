// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/backlog"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
)

// TestManyRequests: as with TCP, none of a thousand concurrent requests is rejected, although the
// program only accepts them later.
func TestManyRequests(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", n.config())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	requests := min(1000, backlog.Limit())
	peers := make([]*rawPeer, requests)
	for i := range peers {
		peers[i] = rawDial(t, ln.Addr())
		peers[i].sendFrame(rawRequest())
	}
	for range requests {
		require.NoError(t, n.request(ln).Reject([]byte("by the program")))
	}
	for _, p := range peers {
		f, err := mpa.ReadFrame(p.conn)
		require.NoError(t, err)
		require.Equal(t, "by the program", string(f.PrivateData))
		p.close()
	}
}
