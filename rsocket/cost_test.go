// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// TestAllocReadWrite: Read, Write and moving a deadline do not allocate, whether or not they wait
// for the peer.
func TestAllocReadWrite(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates; runs without it with CGO_ENABLED=0")
	}
	c1, c2 := pair(t)
	go answer(c2)
	p := make([]byte, 64)
	round := func() {
		if _, err := c1.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c1, p); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 { // queues and batches grow to their final size
		round()
	}
	require.Zero(t, testing.AllocsPerRun(2000, round))

	large1, large2 := pair(t)
	go func() {
		p := make([]byte, 64<<10)
		for {
			if _, err := large2.Read(p); err != nil {
				return
			}
		}
	}()
	large := make([]byte, 300_000) // waits for room several times
	write := func() {
		if _, err := large1.Write(large); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // buffers grow, and each place of the send queue is used for every kind of request
		write()
	}
	require.Zero(t, testing.AllocsPerRun(100, write))
}

// idleBytes is the maximum memory for an idle connection, both ends included, with queues of 64 and
// including the goroutines of the user-space RNIC, as documented in docs/support.md.
const idleBytes = 160 << 10

// TestIdleMemory measures 1,000 idle connections.
func TestIdleMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies memory; runs without it with CGO_ENABLED=0")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here:", err)
	}
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), RecvBuffer: 16384, SendBuffer: 16384, RecvQueue: 64,
		SendQueue: 64}
	ln := listen(t, cfg, "127.0.0.1:0")
	d := rsocket.Dialer{Config: cfg}
	const n = 1000
	var conns []*rsocket.Conn
	defer func() {
		for _, c := range conns {
			_ = c.SetLinger(0)
			go c.Close()
		}
		for _, c := range conns {
			<-rsocket.Ended(c)
		}
	}()
	connect := func() {
		c1, err := d.DialContext(context.Background(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		conns = append(conns, c1.(*rsocket.Conn))
		c2, err := ln.AcceptConn()
		require.NoError(t, err)
		conns = append(conns, c2)
		p := make([]byte, 100)
		_, err = c1.Write(p) // every connection has been used
		require.NoError(t, err)
		_, err = io.ReadFull(c2, p)
		require.NoError(t, err)
	}
	connect()
	before := resident(t)
	for range n {
		connect()
	}
	per := (resident(t) - before) / n
	t.Logf("%d bytes for an idle connection, both ends", per)
	require.Less(t, per, idleBytes)
}

// resident returns the memory of the process after a garbage collection.
func resident(t *testing.T) int {
	t.Helper()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
