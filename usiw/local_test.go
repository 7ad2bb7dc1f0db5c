// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// stalledWindow is a connection whose peer reads through a window, and accepts only the first bytes
// of the response.
type stalledWindow struct {
	*rawEnd
	p  *rawPeer
	mr *verbs.MR
	mw *verbs.MW
}

func newStalledWindow(t *testing.T) *stalledWindow {
	const size = 2 << 20
	s := &stalledWindow{}
	n := newRawNIC(t, usiw.Config{Network: smallNetwork{}})
	s.rawEnd, s.p = n.passive(rawOpts{})
	s.mr = s.rawEnd.mr(size, 0, rawAccess|verbs.AccessMWBind)
	var err error
	s.mw, err = s.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.mw.Close()) })
	s.bind()
	s.p.send(rawRead(1, rdmap.ReadRequest{SinkSTag: 7, Size: size, SrcSTag: s.mw.RKey()}))
	s.p.read()
	return s
}

// bind binds the window to the whole region.
func (s *stalledWindow) bind() {
	s.t.Helper()
	s.post(verbs.SendWR{Opcode: verbs.WRBindMW, RKey: s.mw.NextRKey(),
		Bind: &verbs.MWBind{MW: s.mw, MR: s.mr, Addr: s.mr.Addr(), Length: uint64(s.mr.Len()),
			Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}})
	require.Equal(s.t, verbs.WC{Opcode: verbs.WCBindMW, QPNum: s.qp.Num()}, s.sent())
}

func (s *stalledWindow) invalidate(flags verbs.SendFlags) {
	s.t.Helper()
	s.post(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: s.mw.RKey(), Flags: flags})
}

func (s *stalledWindow) invalidated() {
	s.t.Helper()
	require.Equal(s.t, verbs.WC{Opcode: verbs.WCLocalInv, QPNum: s.qp.Num()}, s.sent())
}

// takeAnswer makes the peer read the rest of the response.
func (s *stalledWindow) takeAnswer() {
	s.t.Helper()
	for last := false; !last; {
		h, err := ddp.ParseTagged(s.p.read())
		require.NoError(s.t, err)
		last = h.Last
	}
}

// TestLocalStalled: a peer that does not accept the response to its Read does not delay the
// invalidation of the window. Once that completes, nothing reaches the memory through the window.
func TestLocalStalled(t *testing.T) {
	s := newStalledWindow(t)
	s.invalidate(0)
	s.invalidated()
	key := s.mw.RKey()
	s.bind()
	s.invalidate(0)
	s.invalidated()
	s.p.send(rawTagged(rdmap.OpWrite, key, 0, []byte("late")))
	s.ended(terminated(1, 1, 0, false))
	untouched(t, s.mr)
}

// TestLocalOrder: local requests keep their place in the queue, although they need no room in the
// socket.
func TestLocalOrder(t *testing.T) {
	s := newStalledWindow(t)
	s.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, RemoteAddr: 1, RKey: 1})
	s.invalidate(0)
	s.idle(s.scq) // the Write must be sent first
	s.p.send(rawTagged(rdmap.OpWrite, s.mw.RKey(), 0, []byte("in time")))
	s.takeAnswer()
	require.Equal(t, uint64(1), s.sent().ID)
	s.invalidated()
	require.Equal(t, "in time", string(s.mr.Bytes()[:7]))
}

// TestLocalFence: a local request with a fence waits for the responses to earlier Reads, even if
// nothing else delays it.
func TestLocalFence(t *testing.T) {
	s := newStalledWindow(t)
	s.takeAnswer()
	sink := s.rawEnd.mr(8, 0x9000, verbs.AccessLocalWrite)
	s.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead, RemoteAddr: 1, RKey: 1, SGL: []verbs.SGE{s.sge(sink)}})
	s.invalidate(verbs.SendFence)
	s.p.read()
	s.p.send(rawTagged(rdmap.OpWrite, s.mw.RKey(), 0, []byte("in time")))
	s.idle(s.scq)
	s.p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x9000, make([]byte, 8)))
	require.Equal(t, uint64(1), s.sent().ID)
	s.invalidated()
	require.Equal(t, "in time", string(s.mr.Bytes()[:7]))
}

// TestLocalFails: a local request that fails ends the connection at once, even while the peer
// accepts no data.
func TestLocalFails(t *testing.T) {
	s := newStalledWindow(t)
	s.post(verbs.SendWR{ID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: s.mw.RKey() + 1})
	wc := s.sent()
	require.Equal(t, uint64(3), wc.ID)
	require.Equal(t, verbs.WCMWBindErr, wc.Status)
}
