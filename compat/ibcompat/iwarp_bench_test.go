// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// one posts a request at a time, and waits for it.
func one(b *testing.B, x *end, wr verbs.SendWR) {
	list, wcs := []verbs.SendWR{wr}, make([]verbs.WC, 1)
	for b.Loop() {
		_, err := x.qp.PostSend(list)
		require.NoError(b, err)
		_, err = x.cq.Wait(b.Context(), wcs)
		require.NoError(b, err)
		require.NoError(b, wcs[0].Err())
	}
}

// BenchmarkIWARP compares devices over iWARP with the RNICs below: round trips of Sends of 64 bytes, with CQ.Wait on both sides, and
// Writes and atomics, one at a time. The RNIC without RFC 7306 has no atomics of its own.
func BenchmarkIWARP(b *testing.B) {
	for _, c := range []struct {
		name    string
		without verbs.OpSet
		wrapped bool
	}{{"bare", 0, false}, {"full", 0, true}, {"plain", ext.Operations, true}} {
		ends := func(b *testing.B) (x, y *end) {
			in, dev := newIWARP(b, c.without, ibcompat.Config{})
			if c.wrapped {
				in = dev
			}
			return connect(b, open(b, in), open(b, in), verbs.QPConfig{})
		}
		b.Run("SendRecv/"+c.name, func(b *testing.B) {
			x, y := ends(b)
			ctx, cancel := context.WithCancel(b.Context())
			answered := make(chan struct{})
			pong := func(e *end, ctx context.Context) bool {
				var wcs [4]verbs.WC
				for {
					n, err := e.cq.Wait(ctx, wcs[:])
					if err != nil {
						return false
					}
					for _, wc := range wcs[:n] {
						if wc.Status != verbs.WCSuccess {
							return false
						}
						if wc.IsRecv() {
							return true
						}
					}
				}
			}
			recv := func(e *end) { _, _ = e.qp.PostRecv([]verbs.RecvWR{{SGL: e.sgl(2048, 64)}}) }
			send := func(e *end) {
				_, _ = e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: e.sgl(0, 64)}})
			}
			recv(x)
			for range 4 {
				recv(y)
			}
			go func() {
				defer close(answered)
				for pong(y, ctx) {
					recv(y)
					send(y)
				}
			}()
			for b.Loop() {
				send(x)
				require.True(b, pong(x, b.Context()))
				recv(x)
			}
			cancel()
			<-answered
		})
		b.Run("Write/"+c.name, func(b *testing.B) {
			x, y := ends(b)
			wr := verbs.Write(verbs.Remote{Addr: y.mr.Addr(), RKey: y.mr.RKey()}, x.sgl(0, 64)...)
			one(b, x, wr)
		})
		b.Run("FetchAdd/"+c.name, func(b *testing.B) {
			x, y := ends(b)
			wr := x.on(ext.FetchAddWR(nil, 0, 0, 1), 72, y, 1024)
			one(b, x, wr)
		})
	}
}
