// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// within returns a context that limits calls that should be fast.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// usiwDevice returns the device of a new NIC.
func usiwDevice(t testing.TB, cfg usiw.Config) *verbs.Device {
	t.Helper()
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// listen returns a listener on the loopback address that is closed with the test.
func listen(t testing.TB, cfg rsocket.Config, address string) *rsocket.Listener {
	t.Helper()
	ln, err := (&rsocket.ListenConfig{Config: cfg}).Listen(within(t), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// pairOn returns the two ends of a connection, dialled and accepted. They are closed with the test.
func pairOn(t testing.TB, dial, accept rsocket.Config, address string) (c1, c2 *rsocket.Conn) {
	t.Helper()
	ln := listen(t, accept, address)
	d := rsocket.Dialer{Config: dial}
	nc, err := d.DialContext(within(t), "tcp", ln.Addr().String())
	require.NoError(t, err)
	c1 = nc.(*rsocket.Conn)
	c2, err = ln.AcceptConn()
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, c := range []*rsocket.Conn{c1, c2} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
		<-rsocket.Ended(c1)
		<-rsocket.Ended(c2)
	})
	return c1, c2
}

// pair is like pairOn with one device and its defaults.
func pair(t testing.TB) (c1, c2 *rsocket.Conn) {
	t.Helper()
	// without keep-alive nothing else wakes a goroutine that must be woken
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), KeepAlive: rsocket.None}
	return pairOn(t, cfg, cfg, "127.0.0.1:0")
}

func TestConn(t *testing.T) {
	dev := usiwDevice(t, usiw.Config{})
	for _, c := range []struct {
		name string
		cfg  rsocket.Config
	}{
		{"defaults", rsocket.Config{Device: dev}},
		{"tiny", rsocket.Config{Device: dev, RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16,
			Inline: rsocket.None}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nettest.TestConn(t, pipe(t, c.cfg, c.cfg, "127.0.0.1:0"))
		})
	}
}

// pipe creates connections for package nettest.
func pipe(t *testing.T, dial, accept rsocket.Config, address string) nettest.MakePipe {
	ln := listen(t, accept, address)
	d := rsocket.Dialer{Config: dial}
	return func() (c1, c2 net.Conn, stop func(), err error) {
		if c1, err = d.Dial("tcp", ln.Addr().String()); err != nil {
			return nil, nil, nil, err
		}
		if c2, err = ln.Accept(); err != nil {
			return nil, nil, nil, err
		}
		return c1, c2, func() {
			_, _ = c1.Close(), c2.Close()
			<-rsocket.Ended(c1.(*rsocket.Conn))
			<-rsocket.Ended(c2.(*rsocket.Conn))
		}, nil
	}
}
