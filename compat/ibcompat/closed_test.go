// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestClosedQPs checks that after both ends of a connection that failed are closed, neither the
// provider nor the layer above keeps the connection in memory, even if nobody has read its events.
func TestClosedQPs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, nic.Close()) }()
	ib, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
	require.NoError(t, err)
	for _, dev := range []*verbs.Device{nic.Device(), ib} {
		t.Run(dev.Name(), func(t *testing.T) {
			vctx, err := dev.Open()
			require.NoError(t, err)
			defer func() { require.NoError(t, vctx.Close()) }()
			ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: vctx})
			require.NoError(t, err)
			defer func() { require.NoError(t, ln.Close()) }()
			var qps []weak.Pointer[verbs.QP]
			for range 5 {
				qps = append(qps, abandoned(t, ctx, vctx, ln)...)
			}
			for _, qp := range qps {
				for qp.Value() != nil {
					require.NoError(t, ctx.Err(), "a QP that has been closed is still in memory")
					time.Sleep(time.Millisecond)
					runtime.GC()
				}
			}
		})
	}
}

// abandoned makes a connection, breaks it by a Write with an invalid key, and closes both ends.
func abandoned(t *testing.T, ctx context.Context, vctx *verbs.Context, ln *cm.Listener) (qps []weak.Pointer[verbs.QP]) {
	accepted := make(chan *cm.Endpoint, 1)
	go func() {
		ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
		if err == nil {
			accepted <- ep
		}
	}()
	a, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Context: vctx}, cm.EndpointConfig{Memory: 64})
	require.NoError(t, err)
	var b *cm.Endpoint
	select {
	case b = <-accepted:
	case <-ctx.Done():
		require.NoError(t, ctx.Err())
	}
	sge, err := a.MR().SGE(0, 8)
	require.NoError(t, err)
	_, _ = a.Do(ctx, verbs.Write(verbs.Remote{Addr: 8, RKey: 8, Length: 8}, sge)) // iWARP completes it
	for _, ep := range []*cm.Endpoint{a, b} {
		<-ep.ID().Done()
		qps = append(qps, weak.Make(ep.QP()))
		require.NoError(t, ep.Close())
	}
	return qps
}
