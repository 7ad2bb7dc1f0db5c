// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// TestExchange sends random pieces in both directions concurrently, with buffers and queues of
// every kind on either side.
func TestExchange(t *testing.T) {
	dev := usiwDevice(t, usiw.Config{})
	tiny := rsocket.Config{Device: dev, RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16,
		Inline: rsocket.None}
	odd := rsocket.Config{Device: dev, RecvBuffer: 10_002, SendBuffer: 7_777, RecvQueue: 33, SendQueue: 21, Inline: 3}
	large := rsocket.Config{Device: dev, RecvBuffer: 1 << 20, SendBuffer: 1 << 20, RecvQueue: 5000, SendQueue: 5000,
		Inline: 1024}
	for _, c := range []struct {
		name         string
		dial, accept rsocket.Config
		address      string
	}{
		{"defaults", rsocket.Config{Device: dev}, rsocket.Config{Device: dev}, "127.0.0.1:0"},
		{"tiny and large", tiny, large, "127.0.0.1:0"},
		{"large and tiny", large, tiny, "127.0.0.1:0"},
		{"odd", odd, odd, "127.0.0.1:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c1, c2 := pairOn(t, c.dial, c.accept, c.address)
			exchange(t, c1, c2, 1<<19)
		})
	}
}

func TestIPv6(t *testing.T) {
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no ::1 here:", err)
	} else {
		_ = ln.Close()
	}
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	c1, c2 := pairOn(t, cfg, cfg, "[::1]:0")
	for _, a := range []net.Addr{c1.LocalAddr(), c1.RemoteAddr(), c2.LocalAddr(), c2.RemoteAddr()} {
		require.IsType(t, &net.TCPAddr{}, a)
		require.True(t, a.(*net.TCPAddr).IP.Equal(net.IPv6loopback), a)
	}
	require.Equal(t, c1.LocalAddr().String(), c2.RemoteAddr().String())
	require.Equal(t, c1.RemoteAddr().String(), c2.LocalAddr().String())
	exchange(t, c1, c2, 1<<17)
	d := rsocket.Dialer{Config: cfg}
	_, err := d.DialContext(within(t), "tcp4", "[::1]:1")
	require.ErrorContains(t, err, "no suitable address")
}

// TestSequenceWrap sends more messages than the numbers can count, over a connection.
func TestSequenceWrap(t *testing.T) {
	c1, c2 := pair(t)
	messages := 70_000
	if race.Enabled {
		messages = 5_000 // TestSequenceWraps wraps; here it would take 20 s
	}
	sent := make(chan error, 1)
	go func() {
		for i := range messages {
			if _, err := c1.Write([]byte{byte(i * i >> 3)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- c1.CloseWrite()
	}()
	p, n := make([]byte, 4096), 0
	for {
		k, err := c2.Read(p)
		for i := range k {
			if p[i] != byte((n+i)*(n+i)>>3) {
				t.Fatalf("byte %d", n+i)
			}
		}
		n += k
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.Equal(t, messages, n)
	require.NoError(t, <-sent)
}

// counted counts the calls of an io.Reader or io.Writer and hides its other methods.
type counted struct {
	r     io.Reader
	w     io.Writer
	calls int
}

func (c *counted) Read(p []byte) (int, error)  { c.calls++; return c.r.Read(p) }
func (c *counted) Write(p []byte) (int, error) { c.calls++; return c.w.Write(p) }

func TestCopy(t *testing.T) {
	c1, c2 := pair(t)
	data := text(1 << 20)
	src := &counted{r: bytes.NewReader(data)}
	sent := make(chan error, 1)
	go func() {
		n, err := io.Copy(c1, src) // by ReadFrom
		if err == nil && n != int64(len(data)) {
			err = io.ErrShortWrite
		}
		sent <- errors.Join(err, c1.CloseWrite())
	}()
	var got bytes.Buffer
	dst := &counted{w: &got}
	n, err := io.Copy(dst, c2) // by WriteTo
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.EqualValues(t, len(data), n)
	require.True(t, bytes.Equal(data, got.Bytes()))
	require.Less(t, src.calls, 600, "ReadFrom fills messages")
}

// failing fails after some bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	n := min(f.left, len(p))
	f.left -= n
	if f.left == 0 {
		return n, f.err
	}
	return n, nil
}

func (f *failing) Write(p []byte) (int, error) { return f.Read(p) }

// TestCopyFails: errors of the other reader or writer are returned unchanged, and data transferred
// before is counted.
func TestCopyFails(t *testing.T) {
	c1, c2 := pair(t)
	broken := errors.New("broken")
	n, err := c1.ReadFrom(&failing{10_000, broken})
	require.Equal(t, broken, err)
	require.EqualValues(t, 10_000, n)
	n, err = c2.WriteTo(&failing{3_000, broken})
	require.Equal(t, broken, err)
	require.EqualValues(t, 3_000, n)
	n, err = c2.WriteTo(&failing{3_000, nil})
	require.Equal(t, io.ErrShortWrite, err)
	require.EqualValues(t, 3_000, n)
	rest := make([]byte, 4_000)
	_, err = io.ReadFull(c2, rest)
	require.NoError(t, err, "what a writer did not take can be read")
}

func TestBuffers(t *testing.T) {
	c1, c2 := pair(t)
	var v net.Buffers
	var want []byte
	for i := range 1000 {
		b := text(i % 97)
		v, want = append(v, b), append(want, b...)
	}
	w := append(net.Buffers(nil), v...)
	n, err := c1.WriteBuffers(&v)
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	require.Empty(t, v)
	got := make([]byte, len(want))
	_, err = io.ReadFull(c2, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	// With ReadFrom, and with the WriteTo of package net.
	x := append(net.Buffers(nil), w...)
	n, err = c1.ReadFrom(&x)
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	_, err = io.ReadFull(c2, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	sent := make(chan error, 1)
	go func() { // more messages than credits
		_, err := w.WriteTo(c2)
		sent <- err
	}()
	_, err = io.ReadFull(c1, got)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(want, got))
	n, err = c1.WriteBuffers(new(net.Buffers))
	require.NoError(t, err)
	require.Zero(t, n)
}

// fits writes n bytes that fit into the peer's buffer.
func fits(t *testing.T, c *rsocket.Conn, n int) {
	t.Helper()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(30*time.Second)))
	k, err := c.Write(text(n))
	require.NoError(t, err)
	require.Equal(t, n, k)
}

// more writes more than the peer's buffer holds, and returns how many bytes of it were sent in a
// short time.
func more(t *testing.T, c *rsocket.Conn) int {
	t.Helper()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	n, err := c.Write(make([]byte, 2<<20))
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout(), err)
	return n
}

// TestBuffersGrow: the peer can get far ahead of a program that received much at once, but not of
// one that received as much in small messages, one after the other.
func TestBuffersGrow(t *testing.T) {
	const total = 4 << 20
	for _, c := range []struct {
		name    string
		message int
		least   int
		most    int
	}{
		{"large", total, rsocket.DefaultGrowing / 2, rsocket.DefaultGrowing},
		{"small", 8192, rsocket.DefaultBuffer / 2, rsocket.DefaultBuffer},
	} {
		t.Run(c.name, func(t *testing.T) {
			c1, c2 := pair(t)
			want, got := text(c.message), make([]byte, c.message)
			for range total / c.message {
				sent := send(c1, want)
				_, err := io.ReadFull(c2, got)
				require.NoError(t, err)
				require.NoError(t, <-sent)
				require.True(t, bytes.Equal(want, got))
			}
			fits(t, c1, c.least)
			require.LessOrEqual(t, c.least+more(t, c1), c.most)
		})
	}
}

// TestSlowReader: a peer that does not read blocks only its own connection, and only that
// connection's buffers are full.
func TestSlowReader(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	slow1, slow2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
	c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
	const n = rsocket.DefaultBuffer // the initial size of the peer's buffer
	fits(t, slow1, n)
	require.Zero(t, more(t, slow1))
	exchange(t, c1, c2, 1<<19)
	require.NoError(t, slow1.SetWriteDeadline(time.Time{}))
	sent := send(slow1, text(1000))
	got := make([]byte, n+1000)
	_, err := io.ReadFull(slow2, got)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(text(1000), got[n:]), "the part of the Write that was sent is not sent again")
}

// tap counts packets of Writes without data.
type tap struct{ packets atomic.Int64 }

func (p *tap) Packet(*usiw.Packet) { p.packets.Add(1) }

// TestKeepAlive: an idle connection sends keep-alives, survives, and stops sending when keep-alive
// is disabled.
func TestKeepAlive(t *testing.T) {
	p := new(tap)
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{Tap: p}), KeepAlive: rsocket.None}
	c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
	quiet := func() int64 {
		for n := p.packets.Load(); ; n = p.packets.Load() {
			time.Sleep(20 * time.Millisecond)
			if p.packets.Load() == n {
				return n
			}
		}
	}
	before := quiet()
	require.NoError(t, c1.SetKeepAlivePeriod(time.Millisecond))
	waitFor(t, func() bool { return p.packets.Load() >= before+20 })
	require.NoError(t, c1.SetKeepAlive(false))
	quiet()
	_, err := c1.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c2, make([]byte, 1))
	require.NoError(t, err)
	require.Error(t, c1.SetKeepAlivePeriod(0))
	require.NoError(t, c1.SetKeepAlive(true))
}

// TestKeepAliveAnswers: with keep-alive, a connection without goroutines inside answers its peer's
// close.
func TestKeepAliveAnswers(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), KeepAlive: time.Millisecond}
	c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
	require.NoError(t, c1.SetLinger(30))
	rsocket.SetPatience(c1, time.Hour)
	require.NoError(t, c1.Close())
	select {
	case <-rsocket.Gone(c1):
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the peer does not answer")
	}
	_, err := c2.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// TestManyAtOnce: any number of goroutines may write and read; each Write stays contiguous up to
// the size of a message.
func TestManyAtOnce(t *testing.T) {
	c1, c2 := pair(t)
	const writers, lines = 8, 200
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			for range lines {
				if _, err := io.WriteString(c1, strings.Repeat(string(rune('a'+i)), 50)+"\n"); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	var n atomic.Int64
	for range 4 {
		go func() {
			p := make([]byte, 333)
			for {
				k, err := c2.Read(p)
				n.Add(int64(k))
				if err != nil {
					return
				}
			}
		}()
	}
	for range writers {
		require.NoError(t, <-done)
	}
	require.NoError(t, c1.CloseWrite())
	waitFor(t, func() bool { return n.Load() == writers*lines*51 })
	_, err := c1.Write(nil)
	require.ErrorIs(t, err, syscall.EPIPE)
}

// TestReserve: no goroutine is inside a connection whose receives are almost all consumed by data,
// and messages without credit still find one: grants, because the other side reads, and its
// SHUTDOWN. On iWARP, a message without a receive would terminate the connection.
func TestReserve(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), RecvQueue: 32}
	c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
	one := []byte{1}
	fill := func(c *rsocket.Conn) (n int) {
		for {
			// a limit only for the Write that has no credit: a busy machine may take longer for any
			// other
			var until time.Time
			if !rsocket.Credit(c) {
				until = time.Now().Add(30 * time.Millisecond)
			}
			require.NoError(t, c.SetWriteDeadline(until))
			if _, err := c.Write(one); err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				return n
			}
			n++
		}
	}
	back := fill(c2)
	there := fill(c1)
	_, err := io.ReadFull(c1, make([]byte, back))
	require.NoError(t, err)
	require.NoError(t, c1.CloseWrite())
	got, err := io.ReadAll(c2)
	require.NoError(t, err)
	require.Len(t, got, there)
	require.Equal(t, there, back)
	require.GreaterOrEqual(t, there, 24)
}
