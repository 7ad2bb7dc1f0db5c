// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// side is one end of a connection with all that it needs.
type side struct {
	ctx   *verbs.Context
	pd    *verbs.PD
	sends *verbs.CQ
	recvs *verbs.CQ
	qp    *verbs.QP
	id    *cm.ID
	words *verbs.MR // words: sinks and sources here, targets of the peer
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newNIC makes a NIC that is gone at the end of the test, with everything on it.
func newNIC(t *testing.T, cfg siw.Config) *verbs.Device {
	nic, err := siw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// newSide makes an unconnected end. shared puts both queues on one CQ, and a channel on both where it is not nil.
func newSide(t *testing.T, dev *verbs.Device, oneCQ, sharedChannel bool) *side {
	s := &side{}
	var err error
	s.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ctx.CloseAll()) })
	s.pd, err = s.ctx.AllocPD()
	require.NoError(t, err)
	var cfg verbs.CQConfig
	if sharedChannel {
		cfg.Channel, err = s.ctx.CreateCompChannel()
		require.NoError(t, err)
	}
	s.sends, err = s.ctx.CreateCQ(cfg)
	require.NoError(t, err)
	s.recvs = s.sends
	if !oneCQ {
		s.recvs, err = s.ctx.CreateCQ(cfg)
		require.NoError(t, err)
	}
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.sends, RecvCQ: s.recvs})
	require.NoError(t, err)
	s.words, err = s.pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	return s
}

// connect connects a to b over loopback, or through what dial makes of b's address.
func connect(t *testing.T, a, b *side, dial func(address string) string) {
	ctx := testContext(t)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: b.ctx})
	require.NoError(t, err)
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
		}
		accepted <- err
	}()
	address := ln.Addr().String()
	if dial != nil {
		address = dial(address)
	}
	a.id, err = cm.Resolve(ctx, address, cm.Config{Context: a.ctx})
	require.NoError(t, err)
	require.NoError(t, a.id.Connect(ctx, a.qp, cm.ConnParam{}))
	require.NoError(t, <-accepted)
	t.Cleanup(func() {
		require.NoError(t, a.id.Close())
		require.NoError(t, b.id.Close())
	})
}

// pair makes two connected ends.
func pair(t *testing.T, acfg, bcfg siw.Config) (a, b *side) {
	a = newSide(t, newNIC(t, acfg), false, false)
	b = newSide(t, newNIC(t, bcfg), false, false)
	connect(t, a, b, nil)
	return a, b
}

// sink returns the i-th word of the side as an SGL.
func (s *side) sink(t *testing.T, i int) []verbs.SGE {
	sge, err := s.words.SGE(8*i, 8)
	require.NoError(t, err)
	return []verbs.SGE{sge}
}

func (s *side) word(i int) uint64       { return binary.NativeEndian.Uint64(s.words.Bytes()[8*i:]) }
func (s *side) setWord(i int, v uint64) { binary.NativeEndian.PutUint64(s.words.Bytes()[8*i:], v) }
func (s *side) addr(i int) uint64       { return s.words.Addr() + 8*uint64(i) }

// do posts wrs, the last of them signalled, and returns its completion.
func (s *side) do(t *testing.T, wrs ...verbs.SendWR) verbs.WC {
	last := &wrs[len(wrs)-1]
	last.Flags |= verbs.SendSignaled
	n, err := s.qp.PostSend(wrs)
	require.NoError(t, err)
	require.Equal(t, len(wrs), n)
	return one(t, s.sends)
}

// one waits for one completion.
func one(t *testing.T, cq *verbs.CQ) verbs.WC {
	var wcs [1]verbs.WC
	n, err := cq.Wait(testContext(t), wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	return wcs[0]
}

// nothingLives asserts that all that the test made has been closed. It is to be called first in a test.
func nothingLives(t *testing.T) {
	before := len(lifetime.Live())
	t.Cleanup(func() {
		for _, n := range lifetime.Live() {
			t.Log(n.Describe())
		}
		require.Len(t, lifetime.Live(), before)
	})
}
