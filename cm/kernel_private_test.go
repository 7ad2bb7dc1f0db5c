// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestPrivateData: the documented maximum of ConnParam.PrivateData is accepted, and the error for
// one byte more states it.
func TestPrivateData(t *testing.T) {
	for _, c := range []struct {
		name, dev, ip          string
		space                  cm.PortSpace
		typ                    verbs.QPType
		request, reply, reject int
	}{
		{"connections on InfiniBand", "fake0", "192.0.2.1", cm.PortSpaceTCP, verbs.QPTypeRC, 56, 196, 148},
		{"datagrams", "fake0", "192.0.2.1", cm.PortSpaceUDP, verbs.QPTypeUD, 180, 136, 136},
		{"iWARP", "fake1", "198.51.100.1", cm.PortSpaceTCP, verbs.QPTypeRC, 251, 251, 251},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.dev, c.ip, cm.Config{PortSpace: c.space})
			text := bytes.Repeat([]byte("private"), 40)
			tooMuch := func(err error, most int) {
				t.Helper()
				var limit *verbs.LimitError
				require.ErrorAs(t, err, &limit)
				require.Equal(t, verbs.LimitError{Name: "private data", Limit: uint64(most), Value: uint64(most + 1)},
					*limit)
			}
			// ask makes a request with n bytes arrive.
			ask := func(n int) (*cm.ID, *cm.Request, chan error) {
				id, qp := b.resolve(cm.Config{PortSpace: c.space}), b.qp(c.typ)
				connected := make(chan error, 1)
				go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{PrivateData: text[:n]}) }()
				req, err := b.ln.Accept(soon(t))
				require.NoError(t, err)
				require.Equal(t, string(text[:n]), string(req.PrivateData()))
				return id, req, connected
			}

			err := b.resolve(cm.Config{PortSpace: c.space}).Connect(soon(t), b.qp(c.typ),
				cm.ConnParam{PrivateData: text[:c.request+1]})
			tooMuch(err, c.request)
			require.Zero(t, fakeverbs.Calls("rdma_connect"))

			id, req, connected := ask(c.request)
			passive, err := req.Accept(soon(t), b.qp(c.typ), cm.ConnParam{PrivateData: text[:c.reply]})
			require.NoError(t, err)
			require.NoError(t, <-connected)
			require.Equal(t, string(text[:c.reply]), string(id.PrivateData()))
			require.NoError(t, passive.Close())
			_, req, connected = ask(c.request)
			_, err = req.Accept(soon(t), b.qp(c.typ), cm.ConnParam{PrivateData: text[:c.reply+1]})
			tooMuch(err, c.reply)
			require.ErrorIs(t, <-connected, cm.ErrRejected)

			_, req, connected = ask(c.request)
			require.NoError(t, req.Reject(text[:c.reject]))
			var rejected *cm.RejectedError
			require.ErrorAs(t, <-connected, &rejected)
			require.Equal(t, string(text[:c.reject]), string(rejected.PrivateData))
			require.Equal(t, []int{-1, -1}, []int{rejected.ORD, rejected.IRD})
			_, req, connected = ask(c.request)
			tooMuch(req.Reject(text[:c.reject+1]), c.reject)
			require.ErrorIs(t, <-connected, cm.ErrRejected)
		})
	}
}
