// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(asFlood); where != "" {
		flood(where)
		return
	}
	rdmatest.Main(m)
}

// limit is how long a test waits for something that must happen. The guest's processor may be
// emulated.
const limit = 3 * time.Minute

// place is where a Go program and a C program connect: the device of each, and their addresses.
type place struct {
	name   string
	device string // of the Go program
	host   string // where the Go program listens
	kernel string // the device of the C program
	peer   string // where the C program listens
}

var places = []place{
	{"rxe0", "rxe0", "10.78.0.1", "rxe0", "10.78.0.1"},
	{"siw0", "siw0", "10.77.0.1", "siw0", "10.77.0.1"},
	{"usiw0 and siw0", "usiw0", "10.77.0.1", "siw0", "10.77.0.1"},
}

// everywhere runs a test in each place.
func everywhere(t *testing.T, test func(t *testing.T, p place, dev *verbs.Device)) {
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			rdmatest.KernelDevice(t, p.kernel)
			nic, err := usiw.Register(usiw.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nic.Close()) })
			dev, err := verbs.DeviceByName(p.device)
			require.NoError(t, err)
			test(t, p, dev)
		})
	}
}

// tiny has buffers and queues of the smallest sizes.
func tiny(dev *verbs.Device) rsocket.Config {
	return rsocket.Config{Device: dev, RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16}
}

// listen listens for a C program.
func (p place) listen(t *testing.T, cfg rsocket.Config) *rsocket.Listener {
	t.Helper()
	lc := rsocket.ListenConfig{Config: cfg}
	ln, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(p.host, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	require.NoError(t, ln.SetDeadline(time.Now().Add(limit)))
	return ln
}

// accept accepts the connection of a C program.
func accept(t *testing.T, ln *rsocket.Listener) *rsocket.Conn {
	t.Helper()
	c, err := ln.AcceptConn()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return c
}

// dial connects to a C program, which may not be listening yet.
func (p place) dial(t *testing.T, cfg rsocket.Config, port string) *rsocket.Conn {
	t.Helper()
	d := rsocket.Dialer{Config: cfg}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(p.peer, port))
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
			return c.(*rsocket.Conn)
		}
		require.NoError(t, ctx.Err(), "%v", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// carries requires that C programs have n QPs in the kernel: none has fallen back to TCP. siw does
// not report the state of a QP.
func (p place) carries(t *testing.T, program string, n int) {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show", "qp", "link", p.kernel+"/1").CombinedOutput()
	require.NoError(t, err, string(out))
	found := 0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "comm "+program+" ") && (p.kernel == "siw0" || strings.Contains(line, "state RTS")) {
			found++
		}
	}
	require.GreaterOrEqual(t, found, n, "QPs of %s: %s", program, out)
}
