// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// patience is how long these tests wait for what should happen soon.
const patience = 30 * time.Second

// side is one end of a connection, with its handles and its internals.
type side struct {
	t        *testing.T
	qp       *verbs.QP
	scq, rcq *verbs.CQ
	mr       *verbs.MR
	id       *cm.ID
	conn     *conn
}

// twoSides makes a connection over TCP; each end has a region of 4 MiB and 64 posted receives.
func twoSides(t *testing.T, cfg Config) (a, b *side) {
	t.Helper()
	n := newSides(t, cfg)
	return n.join(n.side(nil, nil), n.side(nil, nil))
}

// sides makes connections with both ends on the same NIC.
type sides struct {
	t  *testing.T
	v  *verbs.Context
	pd *verbs.PD
}

func newSides(t *testing.T, cfg Config) *sides {
	t.Helper()
	nic, err := New(cfg)
	require.NoError(t, err)
	v, err := nic.Device().SharedContext()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, v.CloseAll())
		require.NoError(t, nic.Close())
	})
	pd, err := v.AllocPD()
	require.NoError(t, err)
	return &sides{t: t, v: v, pd: pd}
}

func (n *sides) cq() *verbs.CQ {
	n.t.Helper()
	cq, err := n.v.CreateCQ(verbs.CQConfig{CQE: 4096})
	require.NoError(n.t, err)
	return cq
}

// side makes one end. If a CQ is nil, the end gets a new one.
func (n *sides) side(scq, rcq *verbs.CQ) *side {
	n.t.Helper()
	s := &side{t: n.t, scq: scq, rcq: rcq}
	if s.scq == nil {
		s.scq = n.cq()
	}
	if s.rcq == nil {
		s.rcq = n.cq()
	}
	var err error
	s.qp, err = n.pd.CreateQP(verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq})
	require.NoError(n.t, err)
	s.mr, err = n.pd.AllocMR(4<<20,
		verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	require.NoError(n.t, err)
	return s
}

// join connects two ends.
func (n *sides) join(a, b *side) (*side, *side) {
	t, v := n.t, n.v
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: v})
	require.NoError(t, err)
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
		}
		accepted <- err
	}()
	a.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: v})
	require.NoError(t, err)
	require.NoError(t, a.id.Connect(ctx, a.qp, cm.ConnParam{}))
	require.NoError(t, <-accepted)
	require.NoError(t, ln.Close())
	for _, s := range []*side{a, b} {
		s.conn = s.qp.Provider().(*qp).conn
		_, err := s.qp.PostRecv(make([]verbs.RecvWR, 64))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.id.Close()) })
	}
	return a, b
}

// post posts a request of size bytes; if size is 0, a Send without data.
func (s *side) post(op verbs.WROpcode, size int, to *side) {
	s.t.Helper()
	wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled}
	if size > 0 {
		sge, err := s.mr.SGE(0, size)
		require.NoError(s.t, err)
		wr.SGL, wr.RemoteAddr, wr.RKey = []verbs.SGE{sge}, to.mr.Addr(), to.mr.RKey()
	}
	_, err := s.qp.PostSend([]verbs.SendWR{wr})
	require.NoError(s.t, err)
}

// next sleeps until there is a completion.
func (s *side) next(cq *verbs.CQ) verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [1]verbs.WC
	_, err := cq.Wait(ctx, wcs[:])
	require.NoError(s.t, err)
	return wcs[0]
}

// polledNext polls until there is a completion.
func (s *side) polledNext(cq *verbs.CQ) verbs.WC {
	s.t.Helper()
	var wcs [1]verbs.WC
	for limit := time.Now().Add(patience); ; {
		n, err := cq.Poll(wcs[:])
		require.NoError(s.t, err)
		if n == 1 {
			return wcs[0]
		}
		require.True(s.t, time.Now().Before(limit), "nothing completes")
	}
}

// read returns a Read of 64 bytes from the other side.
func (s *side) read(from *side) []verbs.SendWR {
	sge, err := s.mr.SGE(0, 64)
	require.NoError(s.t, err)
	return []verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}}
}

// answeredBy requires that the other side answers a Read without its program's help.
func (s *side) answeredBy(peer *side) {
	s.t.Helper()
	s.post(verbs.WRRDMARead, 64, peer)
	wc := s.next(s.scq)
	require.NoError(s.t, wc.Err())
	require.Equal(s.t, verbs.WCRDMARead, wc.Opcode)
}

// keeper returns the keeper of the watch over the side's connection.
func (s *side) keeper() keeper {
	w := s.watch()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keeper
}

func (s *side) watch() *watch {
	s.conn.dev.watching.Lock()
	defer s.conn.dev.watching.Unlock()
	return s.conn.watched
}

// becomes waits until k is the keeper.
func (s *side) becomes(k keeper) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.keeper() == k }, patience, 100*time.Microsecond)
}

// trusted clears the debt of the program.
func (s *side) trusted() {
	w := s.watch()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt.Store(-credit)
}

// isArmed reports whether the CQ generates an event for the next completion.
func (c *cq) isArmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arm != queue.Disarmed
}
