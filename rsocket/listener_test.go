// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestAcceptsByItself: connections are established and can carry data before the program calls
// Accept; beyond the backlog they are refused.
func TestAcceptsByItself(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	ln, err := (&rsocket.ListenConfig{Config: cfg, Backlog: 2}).Listen(within(t), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := rsocket.Dialer{Config: cfg}
	var conns []net.Conn
	for range 2 {
		c, err := d.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(c, "early")
		require.NoError(t, err)
		conns = append(conns, c)
	}
	// One more may be in progress while the second is being set up.
	waitFor(t, func() bool {
		var c net.Conn
		if c, err = d.Dial("tcp", ln.Addr().String()); err == nil {
			conns = append(conns, c)
		}
		return err != nil
	})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "backlog full")
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)

	first, err := ln.Accept()
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = io.ReadFull(first, b)
	require.NoError(t, err)
	require.Equal(t, "early", string(b))
	accepted := map[string]net.Conn{first.RemoteAddr().String(): first}
	waitFor(t, func() bool { // there is room again
		c, err := d.Dial("tcp", ln.Addr().String())
		if err == nil {
			conns = append(conns, c)
			return true
		}
		other, err := ln.Accept() // the one in progress took the place
		require.NoError(t, err)
		accepted[other.RemoteAddr().String()] = other
		return false
	})
	// Close closes what was not accepted, and nothing else.
	require.NoError(t, ln.Close())
	require.ErrorIs(t, ln.Close(), net.ErrClosed)
	_, err = ln.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, ln.SetDeadline(time.Now()), net.ErrClosed)
	for _, c := range conns {
		if accepted[c.LocalAddr().String()] != nil {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err := c.Read(b)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err := c.Read(b)
		// reset if its setup was not finished
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), err)
	}
	for _, c := range accepted {
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
}

func TestAcceptDeadline(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	ln := listen(t, cfg, "127.0.0.1:0")
	require.NoError(t, ln.SetDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := ln.Accept()
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.NoError(t, ln.SetDeadline(time.Time{}))
	go func() {
		d := rsocket.Dialer{Config: cfg}
		if c, err := d.Dial("tcp", ln.Addr().String()); err == nil {
			_ = c.Close()
		}
	}()
	c, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, []*verbs.Device{cfg.Device}, ln.Devices())
}

func TestDialRefused(t *testing.T) {
	dev := usiwDevice(t, usiw.Config{})
	dial := func(cfg rsocket.Config, network, address string) error {
		d := rsocket.Dialer{Config: cfg}
		c, err := d.DialContext(within(t), network, address)
		require.Nil(t, c)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			_, lerr := (&rsocket.ListenConfig{Config: cfg}).Listen(within(t), network, address)
			require.Error(t, lerr, "%v %s %s", cfg, network, address)
		}
		return err
	}
	require.ErrorIs(t, dial(rsocket.Config{Device: new(verbs.Device)}, "tcp", "127.0.0.1:1"), verbs.ErrNoDevice)
	require.ErrorIs(t, dial(rsocket.Config{Device: dev}, "tcp", "127.0.0.1:1"), syscall.ECONNREFUSED)
	var unknown net.UnknownNetworkError
	require.ErrorAs(t, dial(rsocket.Config{Device: dev}, "udp", "127.0.0.1:1"), &unknown)
	require.Error(t, dial(rsocket.Config{Device: dev}, "tcp", "no port"))
	require.Error(t, dial(rsocket.Config{Device: dev}, "tcp6", "127.0.0.1:1"))
	for _, cfg := range []rsocket.Config{
		{RecvBuffer: 4095}, {RecvBuffer: 4097}, {RecvBuffer: 1<<30 + 2}, {RecvBuffer: -2}, {SendBuffer: 1},
		{SendBuffer: 1<<30 + 1},
		{RecvQueue: 15}, {RecvQueue: 65001}, {SendQueue: 15}, {SendQueue: 65001}, {Inline: -2},
	} {
		cfg.Device = dev
		require.ErrorIs(t, dial(cfg, "tcp", "127.0.0.1:1"), verbs.ErrInvalid, "%+v", cfg)
	}
	_, err := (&rsocket.ListenConfig{Config: rsocket.Config{Device: dev}, Backlog: -1}).Listen(within(t), "tcp",
		"127.0.0.1:0")
	require.ErrorIs(t, err, verbs.ErrInvalid)
	// More than the device supports, which is detected when a connection is established.
	ln := listen(t, rsocket.Config{Device: dev}, "127.0.0.1:0")
	d := rsocket.Dialer{Config: rsocket.Config{Device: dev, SendQueue: 65000}}
	_, err = d.Dial("tcp", ln.Addr().String())
	require.ErrorIs(t, err, verbs.ErrLimit)

	ctx, cancel := context.WithCancel(within(t))
	cancel()
	d.Config.SendQueue = 0
	_, err = d.DialContext(ctx, "tcp", ln.Addr().String())
	require.ErrorIs(t, err, context.Canceled)
	d.Timeout = time.Nanosecond
	_, err = d.Dial("tcp", ln.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout())
}

// TestWrappedDevice: ib: devices use the private data themselves and are refused by name.
func TestWrappedDevice(t *testing.T) {
	dev, err := ibcompat.Wrap(usiwDevice(t, usiw.Config{Name: "usiw-rsocket"}), ibcompat.Config{})
	require.NoError(t, err)
	d := rsocket.Dialer{Config: rsocket.Config{Device: dev}}
	_, err = d.DialContext(within(t), "tcp", "127.0.0.1:1")
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "ib:usiw-rsocket")
	_, err = (&rsocket.ListenConfig{Config: d.Config}).Listen(within(t), "tcp", "127.0.0.1:0")
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.NoError(t, dev.CloseShared())
}

// TestAuto: Dial and Listen use the device that the address selects.
func TestAuto(t *testing.T) {
	nic, err := usiw.Register(usiw.Config{})
	require.NoError(t, err)
	defer nic.Close()
	ln, err := rsocket.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c1, err := rsocket.Dial(ln.Addr().String())
	require.NoError(t, err)
	c2, err := ln.AcceptConn()
	require.NoError(t, err)
	require.Equal(t, nic.Device(), c1.Device())
	exchange(t, c1, c2, 1<<16)
	<-rsocket.Ended(c1)
	<-rsocket.Ended(c2)
	require.NoError(t, nic.Device().CloseShared())
}

func TestPrint(t *testing.T) {
	c1, c2 := pair(t)
	want := fmt.Sprintf("Conn(device=%s state=open local=%s remote=%s qp_num=%d)", c1.Device().Name(), c1.LocalAddr(),
		c1.RemoteAddr(), c1.ID().QP().Num())
	require.Equal(t, want, c1.String())
	require.Equal(t, want, fmt.Sprintf("%v", c1))
	b, err := json.Marshal(c2)
	require.NoError(t, err)
	require.Contains(t, string(b), c2.RemoteAddr().String())
	require.Equal(t, "no Conn", new(rsocket.Conn).String())
	require.Equal(t, "no Conn", (*rsocket.Conn)(nil).String())
	require.Equal(t, "no Listener", new(rsocket.Listener).String())
	ln := listen(t, rsocket.Config{Device: c1.Device()}, "127.0.0.1:0")
	require.Contains(t, ln.String(), "state=listening")
	require.NoError(t, ln.Close())
	require.Contains(t, ln.String(), "state=closed")
	require.NoError(t, c1.Close())
	require.Contains(t, c1.String(), "state=closed")
}

// scarce is the host's TCP. Its first Accept runs out of descriptors.
type scarce struct {
	net.Dialer
	net.ListenConfig
}

func (s *scarce) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	ln, err := s.ListenConfig.Listen(ctx, network, address)
	return &scarceListener{Listener: ln}, err
}

type scarceListener struct {
	net.Listener
	failed atomic.Bool
}

func (l *scarceListener) Accept() (net.Conn, error) {
	if !l.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(),
			Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestAcceptWithoutDescriptors: Accept reports a lack of descriptors, as TCP's does, and succeeds
// once there are some.
func TestAcceptWithoutDescriptors(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{Network: new(scarce)})}
	ln := listen(t, cfg, "127.0.0.1:0")
	_, err := ln.Accept()
	require.ErrorIs(t, err, syscall.EMFILE)
	var passes net.Error
	require.ErrorAs(t, err, &passes)
	require.True(t, passes.Temporary(), "net/http waits and goes on") //nolint:staticcheck // it asks this
	go func() {
		d := rsocket.Dialer{Config: cfg}
		if c, err := d.Dial("tcp", ln.Addr().String()); err == nil {
			_ = c.Close()
		}
	}()
	c, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// TestManyDials: as with TCP, none of a thousand concurrent dials is refused, although the program
// accepts only afterwards.
func TestManyDials(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16,
		SendQueue: 16}
	ln := listen(t, cfg, "127.0.0.1:0")
	const dials = 1000
	failed := make(chan error, dials)
	for range dials {
		go func() {
			d := rsocket.Dialer{Config: cfg}
			c, err := d.Dial("tcp", ln.Addr().String())
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			failed <- err
		}()
	}
	for range dials {
		require.NoError(t, <-failed)
	}
	for range dials {
		require.NoError(t, ln.SetDeadline(time.Now().Add(30*time.Second)))
		c, err := ln.Accept()
		require.NoError(t, err)
		_ = c.(*rsocket.Conn).SetLinger(0)
		_ = c.Close()
	}
}
