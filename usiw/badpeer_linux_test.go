// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// flood posts Writes of 64 KiB until the send queue stays full, which means that the socket is
// full, too.
func flood(t *testing.T, s *scaleSide, c *connection) (posted int) {
	sge, err := s.mr.SGE(0, 64<<10)
	require.NoError(t, err)
	wr := []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: c.region.Addr, RKey: c.region.Key}}
	var wcs [16]verbs.WC
	completed := 0
	began := time.Now()
	for last := began; posted-completed < 16 || time.Since(last) < 300*time.Millisecond; {
		require.Less(t, time.Since(began), rawWait, "%d Writes are pending", posted-completed)
		n, err := c.qp.PostSend(wr)
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			time.Sleep(time.Millisecond)
		} else {
			posted += n
			last = time.Now()
		}
		n, err = s.cq.Poll(wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			completed++
			last = time.Now()
		}
	}
	return posted - completed
}

// flushed polls n completions, the last of which must be flushed. The socket may have accepted the
// first few in the meantime.
func flushed(t *testing.T, s *scaleSide, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), rawWait)
	defer cancel()
	var wcs [16]verbs.WC
	lost := 0
	for n > 0 {
		k, err := s.cq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:k] {
			if wc.Status == verbs.WCSuccess && lost == 0 {
				continue
			}
			require.Equal(t, verbs.WCWRFlushErr, wc.Status)
			lost++
		}
		n -= k
	}
	require.Positive(t, lost)
}

// badPeer connects to a separate process.
func badPeer(t *testing.T, cfg usiw.Config) (*scalePeer, *scaleSide, *connection) {
	peer := startScalePeer(t)
	s, err := newScaleSideOf(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	c, err := s.connect(context.Background(), peer.addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(c.id.Close(), c.qp.Close())) })
	return peer, s, c
}

// closesInTime waits until Close returns.
func closesInTime(t *testing.T, closed <-chan error, began time.Time, closeTimeout time.Duration) {
	t.Helper()
	within(t, closeTimeout+time.Second, "Close", func() { require.NoError(t, <-closed) })
	t.Logf("Close took %v", time.Since(began).Round(time.Millisecond))
}

// TestStoppedPeerClose closes a connection to a stopped process (SIGSTOP) while the socket is full.
func TestStoppedPeerClose(t *testing.T) {
	t.Parallel()
	const closeTimeout = 4 * time.Second
	peer, s, c := badPeer(t, usiw.Config{CloseTimeout: closeTimeout})
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGSTOP))
	pending := flood(t, s, c)
	waited := make(chan error, 1)
	go func() { // another goroutine waits for the connection at the same time
		<-c.id.Done()
		waited <- c.id.Err()
	}()
	began := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- c.id.Close() }()
	flushed(t, s, pending)
	select {
	case err := <-waited:
		require.ErrorIs(t, err, verbs.ErrClosed)
	case <-time.After(rawWait):
		t.Fatal("the waiter sleeps on")
	}
	require.Less(t, time.Since(began), closeTimeout, "what is posted ends at once")
	closesInTime(t, closed, began, closeTimeout)
	require.GreaterOrEqual(t, time.Since(began), closeTimeout, "what is on its way has its time")
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGCONT))
}

// TestStoppedPeerTimeout: PeerTimeout ends a connection to a stopped process.
func TestStoppedPeerTimeout(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	peer, s, c := badPeer(t, usiw.Config{PeerTimeout: patience, CloseTimeout: time.Second})
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGSTOP))
	pending := flood(t, s, c)
	// The kernel may find room for a little more even after a long time without any, so keep the
	// queue full.
	sge, err := s.mr.SGE(0, 64<<10)
	require.NoError(t, err)
	wr := []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: c.region.Addr, RKey: c.region.Key}}
	began := time.Now()
	for gone := false; !gone; {
		if n, _ := c.qp.PostSend(wr); n == 1 {
			pending++
		}
		select {
		case <-c.id.Done():
			gone = true
		case <-time.After(time.Millisecond):
			require.Less(t, time.Since(began), patience+rawWait, "the peer is not given up")
		}
	}
	t.Logf("given up %v after the socket was full", time.Since(began).Round(time.Millisecond))
	require.ErrorIs(t, c.qp.Err(), syscall.ETIMEDOUT)
	flushed(t, s, pending)
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGCONT))
}

// TestStoppedPeerComesBack stops a peer for less than PeerTimeout: nothing is lost.
func TestStoppedPeerComesBack(t *testing.T) {
	peer, s, c := badPeer(t, usiw.Config{})
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGSTOP))
	pending := flood(t, s, c)
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGCONT))
	ctx, cancel := context.WithTimeout(context.Background(), rawBulk)
	defer cancel()
	var wcs [16]verbs.WC
	for pending > 0 {
		n, err := s.cq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
		}
		pending -= n
	}
}

// TestSlowPeer: a peer occasionally reads a few bytes, so that the socket to it is always full, and
// sends an FPDU one byte at a time. Its connection stays open, and Close takes no longer than on
// other connections.
func TestSlowPeer(t *testing.T) {
	t.Parallel()
	const patience, closeTimeout = 3 * time.Second, 3 * time.Second
	n := newRawNIC(t, usiw.Config{PeerTimeout: patience, CloseTimeout: closeTimeout})
	e, p := n.passive(rawOpts{})
	posted := e.flood(e.large(4<<20), 64)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		b := make([]byte, 64<<10)
		for next := byte(0xff); ; next = 0 { // an FPDU of 65,280 bytes
			select {
			case <-stop:
				return
			case <-time.After(patience / 12):
			}
			if _, err := io.ReadFull(p.conn, b); err != nil {
				return
			}
			if _, err := p.conn.Write([]byte{next}); err != nil {
				return
			}
		}
	}()
	time.Sleep(3 * patience)
	require.Equal(t, verbs.QPStateRTS, e.qp.State(), "%v", e.qp.Err())
	began := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- e.id.Close() }()
	require.Less(t, e.sendsDone(posted), posted)
	require.Less(t, time.Since(began), closeTimeout, "what is posted ends at once")
	closesInTime(t, closed, began, closeTimeout)
	close(stop)
	p.close()
	<-stopped
}

// TestKilledPeer kills the peer's process (SIGKILL) with Reads in progress and the socket full.
func TestKilledPeer(t *testing.T) {
	peer, s, c := badPeer(t, usiw.Config{})
	require.NoError(t, peer.cmd.Process.Signal(syscall.SIGSTOP))
	pending := flood(t, s, c)
	began := time.Now()
	require.NoError(t, peer.cmd.Process.Kill())
	select {
	case <-c.id.Done():
	case <-time.After(rawWait):
		t.Fatal("the loss is not noticed at once")
	}
	t.Logf("noticed after %v", time.Since(began).Round(time.Millisecond))
	require.Error(t, c.qp.Err())
	require.Equal(t, verbs.QPStateErr, c.qp.State())
	flushed(t, s, pending)
	_ = peer.cmd.Wait()
}

// acknowledged reports whether everything sent over IPv4 has been acknowledged: no socket has a
// nonempty queue (tx_queue, proc_net_tcp in the kernel's documentation).
func acknowledged(t *testing.T, n *rdmatest.Namespace) bool {
	t.Helper()
	var text []byte
	require.NoError(t, n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/tcp")
		return err
	}))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	require.NotEmpty(t, lines)
	return !slices.ContainsFunc(lines,
		func(line string) bool { return !strings.HasPrefix(strings.Fields(line)[4], "00000000:") })
}

// twoHosts creates two namespaces connected by a cable: v0 with 10.99.0.1 and v1 with 10.99.0.2.
func twoHosts(t *testing.T) (a, b *rdmatest.Namespace) {
	t.Helper()
	a, b = rdmatest.NewNamespace(t), rdmatest.NewNamespace(t)
	a.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	a.IP(t, "link", "set", "v1", "netns", b.Path)
	a.IP(t, "addr", "add", "10.99.0.1/24", "dev", "v0")
	b.IP(t, "addr", "add", "10.99.0.2/24", "dev", "v1")
	a.IP(t, "link", "set", "v0", "up")
	b.IP(t, "link", "set", "v1", "up")
	return a, b
}

// TestSilentHost cuts the cable between two hosts, which causes no error on either. PeerTimeout
// ends the connection of the host that waits for an acknowledgement, and not before its time.
func TestSilentHost(t *testing.T) {
	const patience = time.Second
	a, b := twoHosts(t)

	server, err := newScaleSideOf(usiw.Config{Network: b, CloseTimeout: time.Second})
	require.NoError(t, err)
	client, err := newScaleSideOf(usiw.Config{Network: a, PeerTimeout: patience, CloseTimeout: time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ln, err := cm.Listen(ctx, "10.99.0.2:7306", cm.Config{Device: server.nic.Device()})
	require.NoError(t, err)
	type accepted struct {
		id *cm.ID
		qp *verbs.QP
	}
	served := make(chan accepted, 1)
	go func() {
		r, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		qp, err := server.qp()
		if err != nil {
			return
		}
		id, err := r.Accept(ctx, qp, cm.ConnParam{PrivateData: []byte("{}")})
		if err == nil {
			served <- accepted{id, qp}
		}
	}()
	c, err := client.connect(ctx, "10.99.0.2:7306")
	require.NoError(t, err)
	peer := <-served

	for _, n := range []*rdmatest.Namespace{a, b} {
		require.Eventually(t, func() bool { return acknowledged(t, n) }, rawWait, 10*time.Millisecond)
	}
	b.IP(t, "link", "set", "v1", "down")
	time.Sleep(2 * patience)
	require.Equal(t, verbs.QPStateRTS, c.qp.State(), "nothing was to be acknowledged")
	sge, err := client.mr.SGE(0, 8)
	require.NoError(t, err)
	began := time.Now()
	_, err = c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: server.mr.Addr(), RKey: server.mr.RKey()}})
	require.NoError(t, err)
	select {
	case <-c.id.Done():
	case <-time.After(10 * patience):
		t.Fatal("the silent host is not given up")
	}
	t.Logf("given up after %v", time.Since(began).Round(time.Millisecond))
	require.ErrorIs(t, c.qp.Err(), syscall.ETIMEDOUT)
	flushed(t, client, 1)

	require.NoError(t, errors.Join(c.id.Close(), c.qp.Close(), client.close()))
	// The other side waits for no acknowledgement, so its connection stays open until it is closed.
	require.Equal(t, verbs.QPStateRTS, peer.qp.State())
	within(t, 2*time.Second, "Close within CloseTimeout and 1 s", func() { require.NoError(t, peer.id.Close()) })
	require.NoError(t, errors.Join(peer.qp.Close(), ln.Close(), server.close()))
}
