// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// clock measures the time of a bubble.
type clock struct {
	t     *testing.T
	began time.Time
}

func newClock(t *testing.T) *clock { return &clock{t, time.Now()} }

// at requires that exactly the given time has passed.
func (c *clock) at(want time.Duration, what string) {
	c.t.Helper()
	require.Equal(c.t, want, time.Since(c.began), what)
}

// solo is a NIC with a QP, on a wire whose other side is simulated by the test.
type solo struct {
	*usiwtest.End
	wire *usiwtest.Wire
	ln   *cm.Listener // "nic:1"
}

func newSolo(t *testing.T, cfg usiw.Config) *solo {
	t.Helper()
	s := &solo{End: &usiwtest.End{}, wire: usiwtest.NewWire()}
	if cfg.Network == nil {
		cfg.Network = s.wire
	}
	var err error
	s.NIC, err = usiw.New(cfg)
	require.NoError(t, err)
	s.Context, err = s.NIC.Device().Open()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Context.CloseAll())
		require.NoError(t, s.NIC.Close())
	})
	s.PD, err = s.Context.AllocPD()
	require.NoError(t, err)
	s.SendCQ, err = s.Context.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	s.QP, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.SendCQ, RecvCQ: s.SendCQ, SigAll: true})
	require.NoError(t, err)
	s.MR, err = s.PD.AllocMR(1<<20, usiwtest.AllAccess)
	require.NoError(t, err)
	return s
}

// connect connects to an address in a goroutine.
func (s *solo) connect(t *testing.T, address string) <-chan error {
	t.Helper()
	var err error
	s.ID, err = cm.Resolve(t.Context(), address, cm.Config{Context: s.Context})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ID.Close()) })
	done := make(chan error, 1)
	go func() { done <- s.ID.Connect(t.Context(), s.QP, cm.ConnParam{}) }()
	return done
}

// listen makes the NIC listen on "nic:1".
func (s *solo) listen(t *testing.T) {
	t.Helper()
	var err error
	s.ln, err = cm.Listen(t.Context(), "nic:1", cm.Config{Context: s.Context})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ln.Close()) })
}

// accept accepts one connection in a goroutine.
func (s *solo) accept(t *testing.T) <-chan error {
	done := make(chan error, 1)
	go func() {
		req, err := s.ln.Accept(t.Context())
		if err == nil {
			s.ID, err = req.Accept(t.Context(), s.QP, cm.ConnParam{})
		}
		done <- err
	}()
	return done
}

// dial connects the test to the NIC.
func (s *solo) dial(t *testing.T) closeWriter {
	t.Helper()
	c, err := s.wire.DialContext(t.Context(), "tcp", "nic:1")
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(closeWriter)
}

// frame encodes a startup frame of revision 2 with CRC.
func frame(t *testing.T, reply bool) []byte {
	t.Helper()
	f := mpa.Frame{Reply: reply, CRC: true, Rev: mpa.Rev2, HasEnhanced: true,
		Enhanced: mpa.Enhanced{PeerToPeer: true, RTRWrite: true, IRD: 16, ORD: 16}}
	b, err := f.Append(nil)
	require.NoError(t, err)
	return b
}

// firstMessage is the FPDU of a Write of length 0, which opens a connection.
func firstMessage() []byte {
	b := make([]byte, mpa.FPDULen(ddp.TaggedLen))
	b[1] = ddp.TaggedLen
	ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpWrite), STag: 1}.Put(b[mpa.LengthLen:])
	end := len(b) - mpa.CRCLen
	mpa.PutCRC(b[end:], mpa.CRC(0, b[:end]))
	return b
}

// setupLimits are the default and a configured limit of the set-up, for the active and the passive
// side.
var setupLimits = []struct {
	cfg             usiw.Config
	active, passive time.Duration
}{
	{usiw.Config{}, 10 * time.Second, 5 * time.Second},
	{usiw.Config{SetupTimeout: 1234 * time.Millisecond}, 1234 * time.Millisecond, 1234 * time.Millisecond},
}

// requireSetupTimeout requires that Connect or Accept reports that the peer was too slow.
func requireSetupTimeout(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, cm.ErrSetupTimeout)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
}

// TestSetupTimeoutActive: if a listener does not answer, whatever it does instead, the active side
// aborts set-up in time.
func TestSetupTimeoutActive(t *testing.T) {
	for _, limit := range setupLimits {
		for _, c := range []struct {
			name string
			peer func(t *testing.T, c net.Conn)
		}{
			{"silent", func(*testing.T, net.Conn) {}},
			{"one byte short", func(t *testing.T, c net.Conn) { write(t, c, string(frame(t, true)[:23])) }},
			{"one byte at a time", func(t *testing.T, c net.Conn) {
				for _, b := range frame(t, true) {
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(limit.active/20 - time.Nanosecond)
				}
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := newSolo(t, limit.cfg)
					ln, err := s.wire.Listen(t.Context(), "tcp", "peer:1")
					require.NoError(t, err)
					defer ln.Close()
					clock := newClock(t)
					done := s.connect(t, "peer:1")
					peer, err := ln.Accept()
					require.NoError(t, err)
					var wg sync.WaitGroup
					wg.Go(func() { c.peer(t, peer) })
					requireSetupTimeout(t, <-done)
					clock.at(limit.active, "Connect")
					require.NotEqual(t, verbs.QPStateRTS, s.QP.State())
					require.NoError(t, peer.Close())
					wg.Wait()
				})
			})
		}
	}
}

// slowNetwork is a network on which dialling takes time.
type slowNetwork struct {
	usiw.Network
	delay time.Duration
}

func (n slowNetwork) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	select {
	case <-time.After(n.delay):
		return n.Network.DialContext(ctx, network, address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSetupTimeoutDial: a single limit covers dialling and the exchange of frames.
func TestSetupTimeoutDial(t *testing.T) {
	for _, limit := range setupLimits {
		for _, delay := range []time.Duration{limit.active / 2, limit.active * 2} {
			bubble(t, func(t *testing.T) {
				wire := usiwtest.NewWire()
				cfg := limit.cfg
				cfg.Network = slowNetwork{wire, delay}
				s := newSolo(t, cfg)
				ln, err := wire.Listen(t.Context(), "tcp", "peer:1")
				require.NoError(t, err)
				defer ln.Close()
				clock := newClock(t)
				requireSetupTimeout(t, <-s.connect(t, "peer:1"))
				clock.at(limit.active, "Connect")
			})
		}
	}
}

// TestSetupTimeoutPassive: if a peer does not send its Request, or its first message, the passive
// side aborts set-up.
func TestSetupTimeoutPassive(t *testing.T) {
	for _, limit := range setupLimits {
		for _, n := range []int{0, 1, 23} {
			bubble(t, func(t *testing.T) {
				s := newSolo(t, limit.cfg)
				s.listen(t)
				clock := newClock(t)
				peer := s.dial(t)
				write(t, peer, string(frame(t, false)[:n]))
				_, err := once(peer)
				require.Equal(t, io.EOF, err)
				clock.at(limit.passive, "the NIC closes")
				t.Log("the listener goes on")
				accepted := s.accept(t)
				peer = s.dial(t)
				write(t, peer, string(frame(t, false)))
				read(t, peer, len(frame(t, true)))
				time.Sleep(limit.passive - time.Nanosecond)
				synctest.Wait()
				require.Empty(t, accepted)
				requireSetupTimeout(t, <-accepted)
				clock.at(2*limit.passive, "Accept")
			})
		}
	}
}

// TestSetupCancelled: cancelling the context ends Connect and Accept at once.
func TestSetupCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := usiwtest.NewWire()
		w.OnDial = func(l *usiwtest.Link) { l.ToDialer.Stall() }
		clock := newClock(t)
		ctx, cancel := context.WithTimeout(t.Context(), 777*time.Millisecond)
		defer cancel()
		_, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{Wire: w})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, cm.ErrSetupTimeout)
		clock.at(777*time.Millisecond, "NewPair")
	})
}

// put returns a Write of n bytes from A to B.
func put(t *testing.T, p *usiwtest.Pair, n int) verbs.SendWR {
	t.Helper()
	return verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: sgl(t, p.A, 0, n),
		RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey()}
}

// peerLimits are the default and a configured PeerTimeout.
var peerLimits = []struct {
	cfg  usiw.Config
	want time.Duration
}{
	{usiw.Config{}, 20 * time.Second},
	{usiw.Config{PeerTimeout: 700 * time.Millisecond}, 700 * time.Millisecond},
}

// TestPeerTimeout: if a peer accepts none of the bytes waiting for it, its connection ends, however
// many they are, and whether or not bytes moved before.
func TestPeerTimeout(t *testing.T) {
	for _, limit := range peerLimits {
		for _, c := range []struct {
			name   string
			bytes  int
			before int // bytes sent while the peer was still reading
		}{
			{"more than all buffers hold", 1 << 20, 0},
			{"more than all buffers hold, after others", 1 << 20, 1 << 20},
			{"more than the wire holds", usiwtest.DefaultBuffer + 1000, 0},
			{"more than the wire holds, after others", usiwtest.DefaultBuffer + 1000, 1 << 20},
		} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := usiwtest.Connect(t,
						usiwtest.PairConfig{A: limit.cfg, B: usiw.Config{CRC: usiw.Off}, Mem: 1 << 20})
					if c.before > 0 {
						wc, err := p.A.Do(t.Context(), put(t, p, c.before))
						require.NoError(t, err)
						require.NoError(t, wc.Err())
						synctest.Wait()
					}
					p.Link.ToListener.Stall()
					clock := newClock(t)
					_, err := p.A.QP.PostSend([]verbs.SendWR{put(t, p, c.bytes)})
					require.NoError(t, err)
					select {
					case <-p.A.ID.Done():
					case <-time.After(10 * limit.want):
					}
					clock.at(limit.want, "the end")
					require.ErrorIs(t, p.A.QP.Err(), syscall.ETIMEDOUT)
					ev, err := p.A.Context.WaitEvent(t.Context())
					require.NoError(t, err)
					require.Equal(t, verbs.EventQPFatal, ev.Type)
					if c.bytes == 1<<20 {
						require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr}, statuses(t, drain(t, p.A.SendCQ)))
					}
				})
			})
		}
	}
}

// slowPeer connects a peer driven by hand, over a wire with small buffers.
func slowPeer(t *testing.T, cfg usiw.Config) (*solo, closeWriter) {
	t.Helper()
	s := newSolo(t, cfg)
	s.wire.Buffer = 1000
	s.listen(t)
	accepted := s.accept(t)
	peer := s.dial(t)
	write(t, peer, string(frame(t, false)))
	read(t, peer, len(frame(t, true)))
	write(t, peer, string(firstMessage()))
	require.NoError(t, <-accepted)
	return s, peer
}

// TestPeerSlow: a connection stays open if the peer still moves bytes, if it only owes a response,
// or if nothing is being sent to it.
func TestPeerSlow(t *testing.T) {
	const long = time.Hour
	for _, limit := range peerLimits {
		t.Run("reads little", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, peer := slowPeer(t, limit.cfg)
				_, err := s.QP.PostSend(
					[]verbs.SendWR{{ID: 1, Opcode: verbs.WRRDMAWrite, SGL: sgl(t, s.End, 0, 1<<20)}})
				require.NoError(t, err)
				for began := time.Now(); time.Since(began) < 10*limit.want; {
					time.Sleep(limit.want / 4)
					read(t, peer, 1)
				}
				require.Equal(t, verbs.QPStateRTS, s.QP.State())
				require.NoError(t, peer.Close())
				<-s.ID.Done()
				require.NoError(t, s.ID.Close())
			})
		})
		t.Run("owes an answer", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg, B: limit.cfg})
				p.Link.ToDialer.Stall()
				_, err := p.A.QP.PostSend([]verbs.SendWR{{ID: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}})
				require.NoError(t, err)
				time.Sleep(long)
				require.Equal(t, verbs.QPStateRTS, p.A.QP.State())
				p.Link.ToDialer.Resume()
				wc, err := usiwtest.Next(t.Context(), p.A.SendCQ)
				require.NoError(t, err)
				require.NoError(t, wc.Err())
			})
		})
		t.Run("idle", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg, B: limit.cfg})
				p.Link.ToListener.Stall()
				p.Link.ToDialer.Stall()
				time.Sleep(long)
				p.Link.ToListener.Resume()
				p.Link.ToDialer.Resume()
				wc, err := p.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRRDMARead})
				require.NoError(t, err)
				require.NoError(t, wc.Err())
			})
		})
		t.Run("pauses", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg, B: usiw.Config{CRC: usiw.Off}, Mem: 1 << 20})
				p.Link.ToListener.Stall()
				done := make(chan verbs.WC, 1)
				go func() {
					wc, _ := p.A.Do(t.Context(), put(t, p, 1<<20))
					done <- wc
				}()
				time.Sleep(limit.want - time.Nanosecond)
				p.Link.ToListener.Resume()
				wc := <-done
				require.NoError(t, wc.Err())
				time.Sleep(10 * limit.want)
				require.Equal(t, verbs.QPStateRTS, p.A.QP.State())
			})
		})
	}
}

// TestCloseTimeout: closing a connection waits for its peer for at most CloseTimeout; all requests
// are flushed at once.
func TestCloseTimeout(t *testing.T) {
	for _, limit := range []struct {
		cfg  usiw.Config
		want time.Duration
	}{{usiw.Config{}, 3 * time.Second}, {usiw.Config{CloseTimeout: 500 * time.Millisecond}, 500 * time.Millisecond}} {
		for _, c := range []struct {
			name  string
			bytes int
			back  bool // the peer's direction is stalled, not ours
			close func(e *usiwtest.End) error
		}{
			{"peer does not read", 0, false, func(e *usiwtest.End) error { return e.ID.Close() }},
			{"peer does not read and the wire is full", 1 << 20, false,
				func(e *usiwtest.End) error { return e.ID.Close() }},
			{"peer does not end", 0, true, func(e *usiwtest.End) error { return e.ID.Close() }},
			{"of the NIC", 1 << 20, false, func(e *usiwtest.End) error { return e.NIC.Close() }},
		} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := usiwtest.Connect(t,
						usiwtest.PairConfig{A: limit.cfg, B: usiw.Config{CRC: usiw.Off}, Mem: 1 << 20})
					if p.Link.ToListener.Stall(); c.back {
						p.Link.ToListener.Resume()
						p.Link.ToDialer.Stall()
					}
					get := verbs.SendWR{ID: 2, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}
					_, err := p.A.QP.PostSend([]verbs.SendWR{put(t, p, c.bytes), get})
					require.NoError(t, err)
					_, err = p.A.QP.PostRecv([]verbs.RecvWR{{ID: 1}})
					require.NoError(t, err)
					synctest.Wait()
					clock := newClock(t)
					closed := make(chan error, 1)
					go func() { closed <- c.close(p.A) }()
					<-p.A.ID.Done()
					sent := statuses(t, drain(t, p.A.SendCQ))
					require.Len(t, sent, 2)
					require.Equal(t, verbs.WCWRFlushErr, sent[1])
					require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr}, statuses(t, drain(t, p.A.RecvCQ)))
					clock.at(0, "flushed")
					require.NoError(t, <-closed)
					clock.at(limit.want, "closed")
				})
			})
		}
		t.Run("peer ends", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg})
				p.Link.ToListener.Delay(limit.want / 3)
				p.Link.ToDialer.Delay(limit.want / 3)
				clock := newClock(t)
				require.NoError(t, p.A.ID.Disconnect())
				clock.at(0, "Disconnect")
				require.NoError(t, p.A.ID.Close())
				clock.at(limit.want/3*2, "there and back")
				<-p.B.ID.Done()
				require.Equal(t, io.EOF, p.B.QP.Err())
			})
		})
	}
}

// TestDelays shows which requests wait for the peer: with a delay in each direction, every time is
// a multiple of the delay.
func TestDelays(t *testing.T) {
	const d = 10 * time.Millisecond
	bubble(t, func(t *testing.T) {
		w := usiwtest.NewWire()
		w.OnDial = func(l *usiwtest.Link) {
			l.ToListener.Delay(d)
			l.ToDialer.Delay(d)
		}
		clock := newClock(t)
		p := usiwtest.Connect(t, usiwtest.PairConfig{Wire: w, AParam: cm.ConnParam{InitiatorDepth: 2}})
		clock.at(3*d, "Request, Reply, first message")

		get := verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}
		put := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
		for _, c := range []struct {
			name string
			wrs  []verbs.SendWR
			want []time.Duration // when each request completes
		}{
			{"a Write", []verbs.SendWR{put}, []time.Duration{0}},
			{"a Read", []verbs.SendWR{get}, []time.Duration{2 * d}},
			{"as many Reads as the depth", []verbs.SendWR{get, get}, []time.Duration{2 * d, 2 * d}},
			{"more", []verbs.SendWR{get, get, get, get, get}, []time.Duration{2 * d, 2 * d, 4 * d, 4 * d, 6 * d}},
			{"in the order of posting", []verbs.SendWR{get, put}, []time.Duration{2 * d, 2 * d}},
		} {
			clock := newClock(t)
			for i := range c.wrs {
				c.wrs[i].ID = uint64(i)
			}
			_, err := p.A.QP.PostSend(c.wrs)
			require.NoError(t, err)
			for i, want := range c.want {
				wc, err := usiwtest.Next(t.Context(), p.A.SendCQ)
				require.NoError(t, err)
				require.NoError(t, wc.Err())
				require.EqualValues(t, i, wc.ID)
				clock.at(want, c.name)
			}
		}
	})
}

// TestDeregTimeout: a deregistration waits up to DeregTimeout for memory queued for a peer that
// does not read. Then that connection ends, and no other.
func TestDeregTimeout(t *testing.T) {
	for _, limit := range []struct {
		cfg  usiw.Config
		want time.Duration
	}{{usiw.Config{CRC: usiw.Off}, 3 * time.Second},
		{usiw.Config{CRC: usiw.Off, DeregTimeout: 250 * time.Millisecond}, 250 * time.Millisecond}} {
		bubble(t, func(t *testing.T) {
			p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg, B: usiw.Config{CRC: usiw.Off}})
			mr, err := p.A.PD.AllocMR(1<<20, verbs.AccessLocalWrite)
			require.NoError(t, err)
			window, err := p.B.PD.AllocMR(1<<20, usiwtest.AllAccess)
			require.NoError(t, err)
			src, err := mr.SGE(0, mr.Len())
			require.NoError(t, err)
			wr := verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{src}, Flags: verbs.SendSignaled,
				RemoteAddr: window.Addr(), RKey: window.RKey()}

			t.Log("a peer that reads is waited for")
			p.Link.ToListener.Stall()
			_, err = p.A.QP.PostSend([]verbs.SendWR{wr})
			require.NoError(t, err)
			time.AfterFunc(limit.want/2, p.Link.ToListener.Resume)
			clock := newClock(t)
			require.NoError(t, mr.Close())
			clock.at(limit.want/2, "MR.Close")
			wc, err := usiwtest.Next(t.Context(), p.A.SendCQ)
			require.NoError(t, err)
			// What had not started to be sent can no longer be sent.
			require.Contains(t, []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocProtErr}, wc.Status)
		})
		bubble(t, func(t *testing.T) {
			p := usiwtest.Connect(t, usiwtest.PairConfig{A: limit.cfg, B: usiw.Config{CRC: usiw.Off}, Mem: 1 << 20})
			p.Link.ToListener.Stall()
			_, err := p.A.QP.PostSend([]verbs.SendWR{put(t, p, 1<<20)})
			require.NoError(t, err)
			synctest.Wait()
			clock := newClock(t)
			require.NoError(t, p.A.MR.Close())
			clock.at(limit.want, "MR.Close")
			<-p.A.ID.Done()
			require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr}, statuses(t, drain(t, p.A.SendCQ)))
			require.ErrorIs(t, p.A.QP.Err(), verbs.ErrClosed)
			require.ErrorContains(t, p.A.QP.Err(), "deregistered")
		})
	}
}

// TestIdleTimeout: a connection on which no bytes move for IdleTimeout ends on both sides,
// initiated by the side that has the limit.
func TestIdleTimeout(t *testing.T) {
	const limit = 10 * time.Second
	for _, cfg := range []usiwtest.PairConfig{{A: usiw.Config{IdleTimeout: limit}},
		{B: usiw.Config{IdleTimeout: limit}}} {
		bubble(t, func(t *testing.T) {
			p := usiwtest.Connect(t, cfg)
			clock := newClock(t)
			for range 10 {
				time.Sleep(limit * 9 / 10)
				wc, err := p.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRRDMAWrite})
				require.NoError(t, err)
				require.NoError(t, wc.Err())
			}
			clock.at(9*limit, "alive")
			<-p.A.ID.Done()
			<-p.B.ID.Done()
			idle := time.Since(clock.began) - 9*limit
			require.GreaterOrEqual(t, idle, limit)
			require.LessOrEqual(t, idle, 2*limit)
			end, other := p.A, p.B
			if cfg.A.IdleTimeout == 0 {
				end, other = p.B, p.A
			}
			require.ErrorIs(t, end.QP.Err(), syscall.ETIMEDOUT)
			require.ErrorIs(t, end.QP.Err(), &verbs.TerminateError{})
			require.ErrorIs(t, other.QP.Err(), &verbs.TerminateError{Remote: true}, "it is no orderly end")
		})
	}
	bubble(t, func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{A: usiw.Config{IdleTimeout: limit}})
		clock := newClock(t)
		<-p.A.ID.Done()
		clock.at(limit, "nothing has ever moved")
	})
}

// TestBytePerSecond: a peer that reads and sends one byte per second is alive, however long that
// lasts. Close takes no longer for it than for other peers, and ends every request and every wait
// at once.
func TestBytePerSecond(t *testing.T) {
	for _, limit := range []struct {
		cfg  usiw.Config
		want time.Duration
	}{{usiw.Config{}, 3 * time.Second}, {usiw.Config{CloseTimeout: 500 * time.Millisecond}, 500 * time.Millisecond}} {
		bubble(t, func(t *testing.T) {
			s, peer := slowPeer(t, limit.cfg)
			_, err := s.QP.PostRecv([]verbs.RecvWR{{ID: 1}})
			require.NoError(t, err)
			_, err = s.QP.PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.WRRDMAWrite, SGL: sgl(t, s.End, 0, 1<<20)},
				{ID: 3, Opcode: verbs.WRRDMARead}})
			require.NoError(t, err)

			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for next := byte(0xff); ; next = 0 { // an FPDU of 65,280 bytes
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
					}
					if _, err := peer.Read(make([]byte, 1)); err != nil {
						return
					}
					if _, err := peer.Write([]byte{next}); err != nil {
						return
					}
				}
			})
			time.Sleep(10 * time.Minute)
			require.Equal(t, verbs.QPStateRTS, s.QP.State())
			waiting := make(chan verbs.WC, 3)
			go func() {
				for range cap(waiting) {
					wc, _ := usiwtest.Next(t.Context(), s.SendCQ)
					waiting <- wc
				}
			}()
			synctest.Wait()
			clock := newClock(t)
			closed := make(chan error, 1)
			go func() { closed <- s.ID.Close() }()
			<-s.ID.Done()
			for range cap(waiting) {
				require.Equal(t, verbs.WCWRFlushErr, (<-waiting).Status)
			}
			clock.at(0, "flushed")
			require.NoError(t, <-closed)
			clock.at(limit.want, "closed")
			close(stop)
			require.NoError(t, peer.Close())
			wg.Wait()
		})
	}
}
