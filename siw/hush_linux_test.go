// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// patience is how long these tests wait for what should happen soon.
const patience = 10 * time.Second

// side is one end of a connection, seen from outside and from inside.
type side struct {
	t        *testing.T
	qp       *verbs.QP
	scq, rcq *verbs.CQ
	mr       *verbs.MR
	id       *cm.ID
	conn     *conn
}

// twoSides makes a connection over TCP; each end has a region of 4 MiB and 64 receives.
func twoSides(t *testing.T, cfg Config) (a, b *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nic, err := New(cfg)
	require.NoError(t, err)
	v, err := nic.Device().SharedContext()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, v.CloseAll())
		require.NoError(t, nic.Close())
	})
	newSide := func() *side {
		s := &side{t: t}
		pd, err := v.AllocPD()
		require.NoError(t, err)
		s.scq, err = v.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		s.rcq, err = v.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		s.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq})
		require.NoError(t, err)
		s.mr, err = pd.AllocMR(4<<20, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
		require.NoError(t, err)
		return s
	}
	a, b = newSide(), newSide()
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

// post posts a request of size octets, a Send without data if that is 0.
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

// hushed polls until the stream is hushed.
func (s *side) hushed() {
	s.t.Helper()
	var wcs [1]verbs.WC
	for limit := time.Now().Add(patience); !s.conn.hush.quiet.Load(); {
		n, err := s.rcq.Poll(wcs[:])
		require.NoError(s.t, err)
		require.Zero(s.t, n)
		require.True(s.t, time.Now().Before(limit), "the stream is not hushed")
	}
}

// read is a Read of 64 octets from the other side.
func (s *side) read(from *side) []verbs.SendWR {
	sge, err := s.mr.SGE(0, 64)
	require.NoError(s.t, err)
	return []verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge}, RemoteAddr: from.mr.Addr(), RKey: from.mr.RKey()}}
}

// answeredBy requires that the other side answers a Read, whatever its program does.
func (s *side) answeredBy(peer *side) {
	s.t.Helper()
	s.post(verbs.WRRDMARead, 64, peer)
	wc := s.next(s.scq)
	require.NoError(s.t, wc.Err())
	require.Equal(s.t, verbs.WCRDMARead, wc.Opcode)
}

// TestHush polls until the stream is hushed, and gets what arrives then, small and larger than what wakes the reader.
func TestHush(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.hushed()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.polledNext(b.rcq).Opcode)
		b.hushed()
		a.post(verbs.WRRDMAWriteWithImm, 4*hushOctets, b)
		require.EqualValues(t, 4*hushOctets, b.polledNext(b.rcq).ByteLen)
	}
	require.False(t, a.conn.hush.quiet.Load(), "the other side has not polled")
}

// TestHushUnpolled stops to poll. What the peer asks for is answered all the same: what came before and what comes after the
// program has been missed. A poll now and then does not hush.
func TestHushUnpolled(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.hushed()
		a.answeredBy(b)
		a.answeredBy(b)
		require.Eventually(t, func() bool { return !b.conn.hush.quiet.Load() }, patience, hushPeriod)
		a.answeredBy(b)
	}
	var wcs [1]verbs.WC
	for range 3 * hushPolls {
		time.Sleep(hushPeriod / 20)
		_, err := b.rcq.Poll(wcs[:])
		require.NoError(t, err)
		require.False(t, b.conn.hush.quiet.Load())
	}
}

// TestHushArmed arms a CQ, or sleeps, while the stream is hushed: completions wake whoever sleeps.
func TestHushArmed(t *testing.T) {
	a, b := twoSides(t, Config{Spin: 50 * time.Microsecond})
	for range 20 {
		b.hushed()
		require.NoError(t, b.rcq.ReqNotify(false))
		require.False(t, b.conn.hush.quiet.Load())
		b.hushed()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
	}
}

// TestHushReceivesWhatCame has a message arrive in the quiet; who ends the quiet receives it.
func TestHushReceivesWhatCame(t *testing.T) {
	a, b := twoSides(t, Config{})
	b.hushed()
	b.conn.rx.mu.Lock() // keeps the timer from receiving
	a.post(verbs.WRSend, 0, b)
	sent := a.next(a.scq)
	require.NoError(t, sent.Err())
	b.conn.rx.mu.Unlock()
	require.NoError(t, b.scq.ReqNotify(false))
	require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
}

// TestHushEnd ends the connection of a hushed stream, from either side and by a reset.
func TestHushEnd(t *testing.T) {
	for name, end := range map[string]func(a, b *side) error{
		"by the peer":        func(a, b *side) error { return a.id.Close() },
		"by itself":          func(a, b *side) error { return b.id.Close() },
		"by closing the QP":  func(a, b *side) error { return b.qp.Close() },
		"by the peer's fail": func(a, b *side) error { return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoSides(t, Config{})
			b.hushed()
			require.NoError(t, end(a, b))
			select {
			case <-b.id.Done():
			case <-time.After(patience):
				require.FailNow(t, "the connection has not ended")
			}
			for range 2 * hushPolls {
				b.conn.polled()
			}
			require.False(t, b.conn.hush.quiet.Load())
		})
	}
}

// lowWater reads SO_RCVLOWAT.
func (s *side) lowWater() (n int) {
	s.t.Helper()
	err := s.conn.s.(*tcpStream).raw.Control(func(fd uintptr) {
		var err error
		n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT)
		require.NoError(s.t, err)
	})
	require.NoError(s.t, err)
	return n
}

// TestHushSocket looks at the socket: the quiet is there, and goes.
func TestHushSocket(t *testing.T) {
	a, b := twoSides(t, Config{})
	require.LessOrEqual(t, b.lowWater(), 1)
	b.hushed()
	require.NoError(t, b.rcq.ReqNotify(false))
	require.LessOrEqual(t, b.lowWater(), 1)
	b.hushed()
	require.Eventually(t, func() bool { return b.lowWater() <= 1 }, patience, hushPeriod)
	require.LessOrEqual(t, a.lowWater(), 1)
}

// reset closes the socket without an orderly end.
func (s *side) reset() error {
	tcp := s.conn.s.(*tcpStream).TCPConn
	return errors.Join(tcp.SetLinger(0), tcp.Close())
}

// TestHushReset has the peer's socket closed without an orderly end while the stream is hushed.
func TestHushReset(t *testing.T) {
	a, b := twoSides(t, Config{})
	b.hushed()
	require.NoError(t, a.reset())
	select {
	case <-b.id.Done():
	case <-time.After(patience):
		require.FailNow(t, "the connection has not ended")
	}
	require.NotErrorIs(t, b.id.Err(), net.ErrClosed)
}
