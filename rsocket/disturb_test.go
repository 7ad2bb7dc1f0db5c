// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// TestDeadlinesMove: other goroutines keep moving the deadlines of both directions. Each call that
// a deadline interrupts returns how much it has done, and continues from there; no byte is lost or
// duplicated.
func TestDeadlinesMove(t *testing.T) {
	const least, block = 20, 300_007 // a block is several messages
	c1, c2 := pair(t)
	var late [2]atomic.Int32 // Writes and Reads interrupted by a deadline
	stop := make(chan struct{})
	var movers sync.WaitGroup
	for _, set := range []func(time.Time) error{c1.SetWriteDeadline, c2.SetReadDeadline, c1.SetDeadline} {
		movers.Go(func() {
			tick := time.NewTicker(100 * time.Microsecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					_ = set(time.Time{})
					return
				case <-tick.C:
				}
				_ = set([...]time.Time{time.Now(), {}, time.Now().Add(50 * time.Microsecond),
					time.Now().Add(time.Hour)}[i%4])
			}
		})
	}
	data := text(block)
	var g errgroup.Group
	g.Go(func() error {
		for end := time.Now().Add(30 * time.Second); late[0].Load() < least || late[1].Load() < least; {
			for p := data; len(p) > 0; {
				n, err := c1.Write(p)
				p = p[n:]
				if errors.Is(err, os.ErrDeadlineExceeded) {
					late[0].Add(1)
				} else if err != nil {
					return err
				}
			}
			if time.Now().After(end) {
				return errors.New("the deadlines end no calls")
			}
		}
		close(stop)
		movers.Wait()
		return c1.CloseWrite()
	})
	total, got := 0, make([]byte, block)
	for n := 0; ; {
		k, err := c2.Read(got[n:])
		total += k
		if n += k; n == block {
			require.True(t, bytes.Equal(data, got), "block before byte %d", total)
			n = 0
		}
		if err == io.EOF {
			require.Zero(t, n)
			break
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			late[1].Add(1)
		} else {
			require.NoError(t, err)
		}
	}
	require.NoError(t, g.Wait())
}

// TestCloseFull: both sides are in a Write that has filled all buffers of its direction, neither
// reads, and both close at the same time. The Writes return, and the connections end.
func TestCloseFull(t *testing.T) {
	dev := usiwDevice(t, usiw.Config{})
	for name, cfg := range map[string]rsocket.Config{
		"defaults": {Device: dev, KeepAlive: rsocket.None},
		"tiny": {Device: dev, KeepAlive: rsocket.None, RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16,
			SendQueue: 16},
	} {
		t.Run(name, func(t *testing.T) {
			c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
			conns := []*rsocket.Conn{c1, c2}
			var sent []<-chan error
			for _, c := range conns {
				// longer than the test waits: the end must come from the peer's answer
				rsocket.SetPatience(c, time.Minute)
				sent = append(sent, send(c, make([]byte, 4<<20)))
			}
			for _, c := range conns {
				waitFor(t, func() bool { return rsocket.Full(c) })
			}
			var g errgroup.Group
			for _, c := range conns {
				g.Go(c.Close)
			}
			require.NoError(t, g.Wait())
			for i, c := range conns {
				if err := <-sent[i]; !errors.Is(err, syscall.ECONNRESET) { // the peer's close may arrive first
					require.ErrorIs(t, err, net.ErrClosed)
				}
				waitFor(t, func() bool { return closed(rsocket.Ended(c)) })
			}
		})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestLinger0UnderWay: both sides send and receive, and one aborts the connection. The other reads
// part of the stream, then an error other than io.EOF; its Write fails too.
func TestLinger0UnderWay(t *testing.T) {
	for range 5 {
		c1, c2 := pair(t)
		data := text(10_007)
		var g errgroup.Group
		for _, c := range []*rsocket.Conn{c1, c2} {
			g.Go(func() (err error) {
				for err == nil {
					_, err = c.Write(data)
				}
				if c == c2 && !errors.Is(err, syscall.ECONNRESET) || c == c1 && !errors.Is(err, net.ErrClosed) {
					return err
				}
				return nil
			})
		}
		var some, rest bytes.Buffer
		_, err := io.CopyN(&some, c2, 1<<20)
		require.NoError(t, err)
		g.Go(func() error {
			if _, err := io.Copy(&rest, c2); !errors.Is(err, syscall.ECONNRESET) {
				return errors.Join(errors.New("no reset"), err)
			}
			return nil
		})
		_, err = io.CopyN(io.Discard, c1, 1<<20)
		require.NoError(t, err)
		require.NoError(t, c1.SetLinger(0))
		require.NoError(t, c1.Close())
		require.NoError(t, g.Wait())
		some.Write(rest.Bytes())
		for got := some.Bytes(); len(got) > 0; {
			n := min(len(got), len(data))
			require.True(t, bytes.Equal(data[:n], got[:n]))
			got = got[n:]
		}
		require.NoError(t, c2.Close())
	}
}

// TestNumbersWrap: the message numbers of both directions pass 65,535 while data flows both ways,
// with queues of every size.
func TestNumbersWrap(t *testing.T) {
	dev := usiwDevice(t, usiw.Config{})
	for name, depth := range map[string]int{"16": 16, "17": 17, "default": 0, "most": 16000} {
		t.Run(name, func(t *testing.T) {
			cfg := rsocket.Config{Device: dev, RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: depth, SendQueue: depth}
			c1, c2 := pairOn(t, cfg, cfg, "127.0.0.1:0")
			for _, c := range [][2]*rsocket.Conn{{c1, c2}, {c2, c1}} { // so that nothing is in flight
				require.NoError(t, <-send(c[0], []byte{1}))
				_, err := io.ReadFull(c[1], make([]byte, 1))
				require.NoError(t, err)
			}
			rsocket.Advance(c1, c2, 65_436)
			var g errgroup.Group
			for _, c := range [][2]*rsocket.Conn{{c1, c2}, {c2, c1}} {
				g.Go(func() error {
					for i := range 300 {
						if _, err := c[0].Write([]byte{byte(i * i >> 3)}); err != nil {
							return err
						}
					}
					return c[0].CloseWrite()
				})
				g.Go(func() error {
					got, err := io.ReadAll(c[1])
					for i, b := range got {
						if b != byte(i*i>>3) {
							return errors.Join(err, errors.New("wrong bytes"))
						}
					}
					if len(got) != 300 {
						err = errors.Join(err, io.ErrUnexpectedEOF)
					}
					return err
				})
			}
			require.NoError(t, g.Wait())
			require.Equal(t, [2]uint16{201, 201}, rsocket.Sent(c1, c2), "65,436, 1 and 300 messages, modulo 65,536")
		})
	}
}
