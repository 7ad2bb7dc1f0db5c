// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"context"
	"io"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// wireFaults is every fault that the package can cause, in one direction of a connection whose
// messages begin at off.
var wireFaults = []struct {
	name    string
	arrange func(l *usiwtest.Link, d *usiwtest.Direction, off int64)
	build   rdmap.Opcode // opcode whose first message cannot be built, if arrange is nil
}{
	{name: "Corrupt", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, off int64) { d.Corrupt(off+40, 1) }},
	{name: "Insert", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, off int64) {
		d.Insert(off+40,
			[]byte{1, 2, 3})
	}},
	{name: "CutAt", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, off int64) { d.CutAt(off + 41) }},
	{name: "Cut", arrange: func(l *usiwtest.Link, _ *usiwtest.Direction, _ int64) { l.Cut() }},
	{name: "EndAt", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, off int64) { d.EndAt(off + 41) }},
	{name: "EndAt, then Cut",
		arrange: func(l *usiwtest.Link, d *usiwtest.Direction, off int64) { d.EndAt(off); l.Cut() }},
	{name: "Split", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, _ int64) { d.Split(1) }},
	{name: "Delay", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, _ int64) { d.Delay(5 * time.Millisecond) }},
	{name: "Stall", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, _ int64) { d.Stall() }},
	{name: "Stall, then Cut", arrange: func(l *usiwtest.Link, d *usiwtest.Direction, _ int64) {
		d.Stall()
		time.AfterFunc(30*time.Millisecond, l.Cut)
	}},
	{name: "Stall, then Resume", arrange: func(_ *usiwtest.Link, d *usiwtest.Direction, _ int64) {
		d.Stall()
		time.AfterFunc(30*time.Millisecond, d.Resume)
	}},
	{name: "FailBuild Send", build: rdmap.OpSend},
	{name: "FailBuild Read Request", build: rdmap.OpReadRequest},
	{name: "FailBuild Read Response", build: rdmap.OpReadResponse},
	{name: "FailBuild Atomic Response", build: rdmap.OpAtomicResponse},
}

// asleep matches goroutines that hold a role of a connection and wait for anything but the
// processor or a lock.
var asleep = struct{ role, state *regexp.Regexp }{
	regexp.MustCompile(`siw\.\(\*conn\)\.(receiveLocked|sendSome)\(`),
	regexp.MustCompile(`^goroutine \d+ (gp=\S+ m=\S+ )?(mp=\S+ )?\[(sleep|select|chan (send|receive)|IO wait|sync\.Cond\.Wait|sync\.WaitGroup\.Wait)`),
}

// sleepers returns the stacks of such goroutines.
func sleepers(buf []byte) (all []string) {
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if asleep.role.MatchString(g) && asleep.state.MatchString(g) {
			all = append(all, g)
		}
	}
	return all
}

// roleStage is a connection on which both sides have every kind of operation in progress.
type roleStage struct {
	*usiwtest.Link
	ends [2]*usiwtest.End
}

// newRoleStage connects two NICs, each through its own network, over a wire.
func newRoleStage(ctx context.Context, t *testing.T, wire *usiwtest.Wire, network usiw.Network,
	build rdmap.Opcode) *roleStage {
	t.Helper()
	s := &roleStage{}
	for i := range s.ends {
		cfg := usiw.Config{Network: network, PeerTimeout: time.Second, CloseTimeout: 100 * time.Millisecond}
		if build != 0 {
			cfg.Hooks = usiwtest.FailBuild(build, 1)
		}
		s.ends[i] = newEndOf(t, cfg)
	}
	a, b := s.ends[0], s.ends[1]
	ln, err := cm.Listen(ctx, "b:1", cm.Config{Context: b.Context})
	require.NoError(t, err)
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			b.ID, err = req.Accept(ctx, b.QP, cm.ConnParam{})
		}
		accepted <- err
	}()
	a.ID, err = cm.Resolve(ctx, "b:1", cm.Config{Context: a.Context})
	require.NoError(t, err)
	require.NoError(t, a.ID.Connect(ctx, a.QP, cm.ConnParam{}))
	require.NoError(t, <-accepted)
	require.NoError(t, ln.Close())
	s.Link = wire.Links()[0]
	for _, e := range s.ends {
		for range 4 {
			_, err := e.QP.PostRecv([]verbs.RecvWR{{SGL: sgl(t, e, recvTo, 32)}})
			require.NoError(t, err)
		}
	}
	return s
}

func (s *roleStage) close(t *testing.T) {
	t.Helper()
	for _, e := range s.ends {
		require.NoError(t, e.ID.Close())
		require.NoError(t, e.Context.CloseAll())
		require.NoError(t, e.NIC.Close())
	}
}

// post posts some requests of every kind on both sides; a failed or full QP accepts no more.
func (s *roleStage) post(t *testing.T) {
	for i, e := range s.ends {
		peer := s.ends[1-i]
		for _, wr := range []verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRRDMARead},
			{Opcode: verbs.WRRDMAWrite}, {Opcode: verbs.WRAtomicFetchAndAdd}} {
			wr.SGL, wr.RKey, wr.RemoteAddr = sgl(t, e, result, 8), peer.MR.RKey(), peer.MR.Addr()+counter
			_, _ = e.QP.PostSend([]verbs.SendWR{wr})
			_, _ = e.QP.PostRecv(make([]verbs.RecvWR, 1))
		}
	}
}

// poll polls every CQ.
func (s *roleStage) poll(t *testing.T) {
	var wcs [8]verbs.WC
	for _, e := range s.ends {
		for _, cq := range []*verbs.CQ{e.SendCQ, e.RecvCQ} {
			_, err := cq.Poll(wcs[:])
			require.NoError(t, err)
		}
	}
}

// eachFault runs f for every fault in both directions.
func eachFault(t *testing.T, f func(t *testing.T, build rdmap.Opcode, arrange func(s *roleStage))) {
	for _, fault := range wireFaults {
		if fault.arrange == nil {
			t.Run(fault.name, func(t *testing.T) { f(t, fault.build, func(*roleStage) {}) })
			continue
		}
		for _, back := range []bool{false, true} {
			name := fault.name + " to the listener"
			if back {
				name = fault.name + " to the dialler"
			}
			t.Run(name, func(t *testing.T) {
				f(t, 0, func(s *roleStage) {
					d := s.ToListener
					if back {
						d = s.ToDialer
					}
					fault.arrange(s.Link, d, d.Written())
				})
			})
		}
	}
}

// TestNobodySleepsInRole causes every fault on the wire: no post and no poll takes time, and
// whenever no bytes move, no goroutine holds a role.
func TestNobodySleepsInRole(t *testing.T) {
	buf := make([]byte, 4<<20)
	eachFault(t, func(t *testing.T, build rdmap.Opcode, arrange func(s *roleStage)) {
		bubble(t, func(t *testing.T) {
			wire := usiwtest.NewWire()
			s := newRoleStage(t.Context(), t, wire, wire, build)
			arrange(s)
			for range 60 {
				before := time.Now()
				s.post(t)
				s.poll(t)
				require.Zero(t, time.Since(before), "a post or a poll has waited")
				synctest.Wait()
				require.Empty(t, sleepers(buf))
				time.Sleep(time.Millisecond)
			}
			s.close(t)
		})
	})
}

// TestNobodySleepsInRoleTCP does the same over sockets of the host, and looks for goroutines that
// sleep in a role.
func TestNobodySleepsInRoleTCP(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	eachFault(t, func(t *testing.T, build rdmap.Opcode, arrange func(s *roleStage)) {
		relay := &relay{wire: usiwtest.NewWire()}
		s := newRoleStage(ctx, t, relay.wire, relay, build)
		arrange(s)
		stop, caught := make(chan struct{}), make(chan []string, 1)
		go func() {
			buf := make([]byte, 1<<20)
			var found []string
			for {
				select {
				case <-stop:
					caught <- found
					return
				case <-time.After(time.Millisecond):
					found = append(found, sleepers(buf)...)
				}
			}
		}()
		for end := time.Now().Add(60 * time.Millisecond); time.Now().Before(end); {
			s.post(t)
			s.poll(t)
		}
		s.close(t)
		close(stop)
		require.Empty(t, <-caught)
		s.Cut() // stalled directions would keep the relay running
		relay.work.Wait()
	})
}

// relay is a network of host TCP connections, each of which passes through a connection on a wire.
type relay struct {
	wire *usiwtest.Wire
	work sync.WaitGroup
}

// join returns a TCP connection whose other end is joined to nc.
func (r *relay) join(nc net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	here, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	there, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	a, b := there.(*net.TCPConn), nc.(closeWriter)
	pass := func(to closeWriter, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			// A reset is passed on as a reset.
			_ = a.SetLinger(0)
			a.Close()
			b.Close()
		}
	}
	var ways sync.WaitGroup
	ways.Go(func() { pass(a, b) })
	ways.Go(func() { pass(b, a) })
	r.work.Go(func() {
		ways.Wait()
		a.Close()
		b.Close()
	})
	return here, nil
}

func (r *relay) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return r.join(r.wire.DialContext(ctx, network, address))
}

func (r *relay) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	ln, err := r.wire.Listen(ctx, network, address)
	return relayed{ln, r}, err
}

type relayed struct {
	net.Listener
	r *relay
}

func (l relayed) Accept() (net.Conn, error) { return l.r.join(l.Listener.Accept()) }
