// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
)

// pipes is a network on which the test opens the streams, in an order of its choosing.
type pipes chan net.Conn

func (p pipes) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, net.ErrClosed
}
func (p pipes) Listen(context.Context, string, string) (net.Listener, error) { return p, nil }
func (p pipes) Close() error                                                 { close(p); return nil }
func (p pipes) Addr() net.Addr                                               { return &net.TCPAddr{} }

func (p pipes) Accept() (net.Conn, error) {
	nc, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}

// open opens a stream.
func (p pipes) open() net.Conn {
	here, there := net.Pipe()
	p <- there
	return here
}

// request sends a Request with private data.
func request(t *testing.T, nc net.Conn, private string) {
	req := mpa.Frame{Rev: mpa.Rev1, PrivateData: []byte(private)}
	b, err := req.Append(nil)
	require.NoError(t, err)
	_, err = nc.Write(b)
	require.NoError(t, err)
}

// TestArrival: Requests are queued in the order in which their streams were accepted, even if the
// second stream's Request arrives first. A silent stream delays the next one by 100 ms, and later
// ones not at all.
func TestArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := make(pipes)
		nic, err := usiw.New(usiw.Config{Network: network})
		require.NoError(t, err)
		defer nic.Close()
		ln, err := cm.Listen(t.Context(), "", cm.Config{Device: nic.Device()})
		require.NoError(t, err)
		defer ln.Close()
		began := time.Now()
		next := func(want string, after time.Duration) {
			r, err := ln.Accept(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, string(r.PrivateData()))
			require.Equal(t, after, time.Since(began))
			go r.Reject(nil)
		}
		var streams []net.Conn
		for range 4 {
			streams = append(streams, network.open())
		}
		for _, nc := range streams {
			defer nc.Close()
		}
		request(t, streams[1], "second")
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		request(t, streams[0], "first")
		next("first", 50*time.Millisecond)
		next("second", 50*time.Millisecond)
		request(t, streams[3], "fourth")
		next("fourth", 150*time.Millisecond) // the third is silent
		request(t, streams[2], "third")
		next("third", 150*time.Millisecond)
		silent := network.open()
		defer silent.Close()
		after, behind := network.open(), network.open()
		defer after.Close()
		defer behind.Close()
		request(t, behind, "behind")
		request(t, after, "after")
		next("after", 250*time.Millisecond)
		next("behind", 250*time.Millisecond)
	})
}

// named is a stream with a given remote address.
type named struct {
	net.Conn
	from net.Addr
}

func (n named) RemoteAddr() net.Addr { return n.from }

// TestArrivalOthers: a silent stream does not delay streams from other addresses, including other
// loopback addresses.
func TestArrivalOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := make(pipes)
		nic, err := usiw.New(usiw.Config{Network: network})
		require.NoError(t, err)
		defer nic.Close()
		ln, err := cm.Listen(t.Context(), "", cm.Config{Device: nic.Device()})
		require.NoError(t, err)
		defer ln.Close()
		open := func(from string) net.Conn {
			here, there := net.Pipe()
			network <- named{there, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
			t.Cleanup(func() { here.Close() })
			return here
		}
		began := time.Now()
		for _, c := range []struct {
			from  string
			after time.Duration
		}{{"192.0.2.2", 0}, {"127.0.0.2", 0}, {"127.0.0.1", 100 * time.Millisecond},
			{"192.0.2.1", 100 * time.Millisecond}, {"::ffff:192.0.2.1", 100 * time.Millisecond}} {
			open("127.0.0.1")
			open("192.0.2.1")
			request(t, open(c.from), c.from)
			r, err := ln.Accept(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.from, string(r.PrivateData()))
			require.Equal(t, c.after, time.Since(began), c.from)
			go r.Reject(nil)
			began = time.Now()
		}
	})
}
