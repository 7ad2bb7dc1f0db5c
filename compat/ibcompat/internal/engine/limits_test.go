// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// peer is one end of a connection over an RNIC without RFC 7306: the engine, or a peer that sends
// what a test wants.
type peer struct {
	*testing.T
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
	id  *cm.ID
}

const slotLen = 8192

func newPeer(t *testing.T, dev *verbs.Device) *peer {
	t.Helper()
	p := &peer{T: t}
	var err error
	p.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.ctx.CloseAll()) })
	p.pd, err = p.ctx.AllocPD()
	require.NoError(t, err)
	p.mr, err = p.pd.AllocMR(64*slotLen, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
	require.NoError(t, err)
	p.cq, err = p.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	p.qp, err = p.pd.CreateQP(
		verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64}})
	require.NoError(t, err)
	return p
}

// newPeers connects a raw peer to an engine and exchanges the hellos.
func newPeers(t *testing.T) (raw, own *peer) { return newPeersOf(t, 60) }

// newPeersOf is newPeers with a raw peer that claims to have this many slots.
func newPeersOf(t *testing.T, slots uint32) (raw, own *peer) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	nic := func(name string) *verbs.Device {
		n, err := usiw.New(usiw.Config{Name: name, Without: ext.Operations})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n.Device()
	}
	raw, own = newPeer(t, nic("raw")), newPeer(t, New(nic("below"), Config{Name: "ib:below"}))
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: own.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	raw.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: raw.ctx})
	require.NoError(t, err)
	require.NoError(t, raw.id.BindQP(raw.qp))
	for i := range 60 {
		sge, err := raw.mr.SGE(i*slotLen, slotLen)
		require.NoError(t, err)
		_, err = raw.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{sge}}})
		require.NoError(t, err)
	}
	connected := make(chan error, 1)
	go func() { connected <- raw.id.Connect(ctx, raw.qp, cm.ConnParam{PrivateData: greeting(nil)}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	own.id, err = req.Accept(ctx, own.qp, cm.ConnParam{})
	require.NoError(t, err)
	require.NoError(t, <-connected)
	t.Cleanup(func() { require.NoError(t, raw.id.Close()); require.NoError(t, own.id.Close()) })
	h := wire.Hello{Segments: 4, RNRTimer: 1, RNRRetries: 7, SlotLen: slotLen, Slots: slots, Threshold: 4096,
		Window: window, Parts: 4}
	raw.say(h.Append(nil))
	raw.hears(2) // the hello and a Credit
	return raw, own
}

// say sends messages in a single post.
func (p *peer) say(msgs ...[]byte) {
	p.Helper()
	at := 60 * slotLen
	var list []verbs.SendWR
	for _, msg := range msgs {
		sge, err := p.mr.SGE(at, copy(p.mr.Bytes()[at:], msg))
		require.NoError(p, err)
		at += len(msg)
		list = append(list, verbs.Send(sge))
	}
	_, err := p.qp.PostSend(list)
	require.NoError(p, err)
}

// hears returns the headers of the next n messages.
func (p *peer) hears(n int) (hs []wire.Header) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 30*time.Second)
	defer cancel()
	for len(hs) < n {
		var wcs [1]verbs.WC
		_, err := p.cq.Wait(ctx, wcs[:])
		require.NoError(p, err)
		require.NoError(p, wcs[0].Err())
		if wcs[0].IsRecv() {
			h, _, _ := wire.ParseHeader(p.mr.Bytes()[int(wcs[0].ID)*slotLen:][:wcs[0].ByteLen])
			hs = append(hs, h)
		}
	}
	return hs
}

// TestLimits checks that a peer may have as many atomics outstanding as the window allows, and one
// request for an acknowledgement. More end the connection, even if they arrive before the engine
// could answer any.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		msg  func(own *peer) []byte
		why  string // "" = answered
	}{
		{"atomics", window, atomicOn, ""},
		{"too many atomics", window + 1, atomicOn, "more than 16 atomics"},
		{"question", 1, question, ""},
		{"too many questions", 2, question, "a question before the answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, own := newPeers(t)
			q, err := verbs.Own[*qp](own.qp.Provider())
			require.NoError(t, err)
			msgs := make([][]byte, c.n)
			for i := range msgs {
				msgs[i] = c.msg(own)
			}
			// The engine reads nothing until the inner device has received all of it, as a Read
			// after it shows.
			q.pump.turn.Lock()
			raw.say(msgs...)
			sge, err := raw.mr.SGE(61*slotLen, 8)
			require.NoError(t, err)
			read := verbs.Read(verbs.Remote{Addr: own.mr.Addr(), Length: 1 << 30, RKey: own.mr.RKey()}, sge)
			read.ID = 77
			_, err = raw.qp.PostSend([]verbs.SendWR{read})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for {
				var wcs [1]verbs.WC
				if _, err = raw.cq.Wait(ctx, wcs[:]); err != nil || wcs[0].Err() != nil || wcs[0].ID == 77 {
					break
				}
			}
			q.pump.turn.Unlock()
			require.NoError(t, err)
			if c.why == "" {
				raw.hears(c.n)
				require.NoError(t, own.qp.Err())
				return
			}
			select {
			case <-own.id.Done():
			case <-ctx.Done():
				require.FailNow(t, "the connection goes on")
			}
			var violated *ProtocolError
			require.ErrorAs(t, own.qp.Err(), &violated)
			require.ErrorContains(t, violated, c.why)
		})
	}
}

func atomicOn(own *peer) []byte {
	h := wire.Header{Kind: wire.Atomic}
	return (&wire.AtomicRequest{RKey: own.mr.RKey(), Addr: own.mr.Addr(), Operand: 1}).Append(h.Append(nil))
}

func question(*peer) []byte {
	h := wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Value: uint64(verbs.AccessRemoteRead)}
	return h.Append(nil)
}
