// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	nic, err := siw.New(siw.Config{})
	require.NoError(t, err)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	type side struct {
		pd *verbs.PD
		cq *verbs.CQ
		qp *verbs.QP
		mr *verbs.MR
		id *cm.ID
	}
	mk := func(c *verbs.Context) *side {
		s := &side{}
		s.pd, err = c.AllocPD()
		require.NoError(t, err)
		s.cq, err = c.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
		require.NoError(t, err)
		s.mr, err = s.pd.AllocMR(8<<20, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
		require.NoError(t, err)
		return s
	}
	srvc := make(chan *side)
	go func() {
		r, err := ln.Accept(ctx)
		require.NoError(t, err)
		s := mk(r.Context())
		require.NoError(t, r.BindQP(s.qp))
		_, err = s.qp.PostRecv([]verbs.RecvWR{{ID: 77}, {ID: 78}})
		require.NoError(t, err)
		s.id, err = r.Accept(ctx, s.qp, cm.ConnParam{})
		require.NoError(t, err)
		srvc <- s
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	c := mk(id.Context())
	require.NoError(t, id.Connect(ctx, c.qp, cm.ConnParam{}))
	s := <-srvc
	t.Log(id, s.id)
	for i := range c.mr.Bytes() {
		c.mr.Bytes()[i] = byte(i * 7)
	}
	sge, _ := c.mr.SGE(0, 4<<20)
	_, err = c.qp.PostSend([]verbs.SendWR{{ID: 1, Opcode: verbs.WRRDMAWriteWithImm, Imm: 0xabcd, SGL: []verbs.SGE{sge}, RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey(), Flags: verbs.SendSignaled}})
	require.NoError(t, err)
	wcs := make([]verbs.WC, 4)
	n, err := c.cq.Wait(ctx, wcs)
	require.NoError(t, err)
	t.Log(wcs[:n])
	n, err = s.cq.Wait(ctx, wcs)
	require.NoError(t, err)
	t.Log(wcs[:n])
	require.Equal(t, c.mr.Bytes()[:4<<20], s.mr.Bytes()[:4<<20])
	sge, _ = c.mr.SGE(4<<20, 4<<20)
	sge8, _ := c.mr.SGE(0, 8)
	_, err = c.qp.PostSend([]verbs.SendWR{
		{ID: 2, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{sge}, RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey(), Flags: verbs.SendSignaled},
		{ID: 3, Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: 1, SGL: []verbs.SGE{sge8}, RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey(), Flags: verbs.SendSignaled},
	})
	require.NoError(t, err)
	for got := 0; got < 2; got += n {
		n, err = c.cq.Wait(ctx, wcs)
		require.NoError(t, err)
		t.Log(wcs[:n])
	}
	require.NoError(t, id.Disconnect())
	<-s.id.Done()
	t.Log(s.id.Err(), id.Err())
	n, err = s.cq.Wait(ctx, wcs)
	require.NoError(t, err)
	t.Log(wcs[:n])
	require.NoError(t, id.Close())
	require.NoError(t, s.id.Close())
	require.NoError(t, ln.Close())
	ctxv, _ := nic.Device().SharedContext()
	require.NoError(t, ctxv.CloseAll())
	require.NoError(t, nic.Close())
}
