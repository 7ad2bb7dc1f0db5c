// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestSRQOpenedBySend: a Send that opens a connection consumes a receive of the shared queue. If
// there is none, the connection ends, as for any Send without a receive. Each stream numbers its
// messages separately.
func TestSRQOpenedBySend(t *testing.T) {
	nic := newRawNIC(t, usiw.Config{RTRMessages: usiw.RTRSend})
	srq, err := nic.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srq.Close()) })
	ln, err := cm.Listen(t.Context(), "127.0.0.1:0", nic.config())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	ctx := t.Context()
	connect := func() (a, b *rawEnd, accepted error) {
		a, b = nic.end(verbs.QPCap{}), nic.end(verbs.QPCap{})
		require.NoError(t, b.qp.Close())
		b.qp, err = nic.pd.CreateQP(verbs.QPConfig{SendCQ: b.scq, RecvCQ: b.rcq, SRQ: srq})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.qp.Close()) })
		id, err := cm.Resolve(ctx, ln.Addr().String(), nic.config())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, id.Close()) })
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(ctx, a.qp, cm.ConnParam{}) }()
		req, err := ln.Accept(ctx)
		require.NoError(t, err)
		peer, accepted := req.Accept(ctx, b.qp, cm.ConnParam{})
		if accepted == nil {
			t.Cleanup(func() { require.NoError(t, peer.Close()) })
			require.NoError(t, <-connected)
		} else {
			<-connected
		}
		return a, b, accepted
	}
	for i := range 3 {
		_, err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(2 * i)}, {ID: uint64(2*i + 1)}})
		require.NoError(t, err)
		a, b, err := connect()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		_, err = b.rcq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		require.Equal(t, verbs.WC{ID: uint64(2 * i), Opcode: verbs.WCRecv, QPNum: b.qp.Num()}, wcs[0])
		_, err = a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		require.NoError(t, err)
		_, err = b.rcq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		require.Equal(t, verbs.WC{ID: uint64(2*i + 1), Opcode: verbs.WCRecv, QPNum: b.qp.Num()}, wcs[0])
	}
	_, _, err = connect()
	require.ErrorIs(t, err, terminated(rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedNoBuffer, false))
}

// TestSRQSizeOfQP: a QP with a shared queue has no receive queue of its own, whatever size was
// requested.
func TestSRQSizeOfQP(t *testing.T) {
	nic := newRawNIC(t, usiw.Config{})
	srq, err := nic.pd.CreateSRQ(verbs.SRQAttr{})
	require.NoError(t, err)
	e := nic.end(verbs.QPCap{})
	qp, err := nic.pd.CreateQP(
		verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, SRQ: srq, Cap: verbs.QPCap{MaxRecvWR: 7, MaxRecvSGE: 2}})
	require.NoError(t, err)
	require.Zero(t, qp.Cap().MaxRecvWR)
	require.Zero(t, qp.Cap().MaxRecvSGE)
	require.NoError(t, qp.Close())
	require.NoError(t, srq.Close())
}
