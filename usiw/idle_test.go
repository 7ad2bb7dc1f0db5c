// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestIdleTimeout keeps a connection open with an occasional Write, and loses it when the Writes
// stop.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	a, p := connectEnds(t, usiw.Config{IdleTimeout: limit})
	sge, err := a.mr.SGE(0, 8)
	require.NoError(t, err)
	for range 12 {
		_, err := a.qp.PostSend(
			[]verbs.SendWR{{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge}, RemoteAddr: p.mr.Addr(),
				RKey: p.mr.RKey()}})
		require.NoError(t, err)
		time.Sleep(limit / 10)
	}
	require.Equal(t, verbs.QPStateRTS, a.qp.State(), "it lives while something moves")
	for _, e := range []*end{a, p} {
		select {
		case <-e.id.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("it does not end")
		}
	}
	// The side that times out first closes the connection, which the other side notices.
	require.True(t, errors.Is(a.qp.Err(), syscall.ETIMEDOUT) || errors.Is(p.qp.Err(), syscall.ETIMEDOUT), "%v, %v",
		a.qp.Err(), p.qp.Err())
}
