// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/verbs"
)

// limit bounds what a test waits for.
const limit = 30 * time.Second

// side is one end of a connection.
type side struct {
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
	id *cm.ID
}

func newSide(tb testing.TB, vctx *verbs.Context) *side {
	s := new(side)
	var err error
	s.pd, err = vctx.AllocPD()
	require.NoError(tb, err)
	s.cq, err = vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(tb, err)
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, SigAll: true})
	require.NoError(tb, err)
	s.mr, err = s.pd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(tb, err)
	return s
}

func (s *side) close(tb testing.TB) {
	require.NoError(tb, s.id.Close())
	require.NoError(tb, s.qp.Close())
	require.NoError(tb, s.mr.Close())
	require.NoError(tb, s.cq.Close())
	require.NoError(tb, s.pd.Close())
}

// connect connects the first two NICs. The server has a receive of 4,096 bytes.
func connect(tb testing.TB, nw *goverbstest.Network) (server, client *side) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: nw.Device(0)})
	require.NoError(tb, err)
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		accepted <- func() error {
			req, err := ln.Accept(ctx)
			if err != nil {
				return err
			}
			server = newSide(tb, req.Context())
			if err := req.BindQP(server.qp); err != nil {
				return err
			}
			sge, err := server.mr.SGE(0, server.mr.Len())
			if err != nil {
				return err
			}
			if _, err := server.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{sge}}}); err != nil {
				return err
			}
			server.id, err = req.Accept(ctx, server.qp, cm.ConnParam{})
			return err
		}()
	}()
	id, err := cm.Resolve(ctx, "server:7306", cm.Config{Device: nw.Device(1)})
	require.NoError(tb, err)
	client = newSide(tb, id.Context())
	client.id = id
	require.NoError(tb, id.Connect(ctx, client.qp, cm.ConnParam{}))
	require.NoError(tb, <-accepted)
	return server, client
}

// send sends a text from one side to the other, which must get it unless wrong says otherwise.
func send(tb testing.TB, from, to *side, text string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	sge, err := from.mr.SGE(0, copy(from.mr.Bytes(), text))
	require.NoError(tb, err)
	_, err = from.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{sge}}})
	require.NoError(tb, err)
	wcs := make([]verbs.WC, 1)
	for _, s := range []*side{from, to} {
		_, err = s.cq.Wait(ctx, wcs)
		require.NoError(tb, err)
		require.NoError(tb, wcs[0].Err())
	}
	require.Equal(tb, text, string(to.mr.Bytes()[:wcs[0].ByteLen]))
}

// exchange connects two NICs, sends a text, and closes everything.
func exchange(tb testing.TB, nw *goverbstest.Network, text string) {
	tb.Helper()
	server, client := connect(tb, nw)
	send(tb, client, server, text)
	client.close(tb)
	server.close(tb)
}
