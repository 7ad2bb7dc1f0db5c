// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestBrokenReason: a write fails because the stream failed earlier. Its error does not hide the
// cause, which another goroutine received and reports a little later. If no goroutine reports a
// cause, the error of the write is reported.
func TestBrokenReason(t *testing.T) {
	pipe := os.NewSyscallError("write", syscall.EPIPE)
	for _, then := range []error{os.NewSyscallError("read", syscall.ETIMEDOUT), nil} {
		a, _ := twoSides(t, Config{})
		a.conn.broken(pipe)
		require.Equal(t, verbs.QPStateRTS, a.qp.State())
		want := pipe
		if then != nil {
			a.conn.broken(then)
			require.Equal(t, verbs.QPStateErr, a.qp.State())
			want = then
		}
		require.Eventually(t, func() bool { return a.qp.State() == verbs.QPStateErr }, patience, time.Millisecond)
		require.ErrorIs(t, a.qp.Err(), want)
		time.Sleep(2 * reasonDelay)
		require.ErrorIs(t, a.qp.Err(), want, "the first reason stays")
	}
}

// TestEndDoesNotWait: for every kind of failure, a read of a failed stream returns at once, either
// with the cause or with an error saying that another call received it. The bubble's clock advances
// only when a goroutine sleeps.
func TestEndDoesNotWait(t *testing.T) {
	for _, c := range []struct {
		name  string
		fail  func(t *testing.T, s *tcpStream, peer *net.TCPConn)
		want  error
		again error // the error of the next read
	}{
		{"FIN", func(t *testing.T, _ *tcpStream, peer *net.TCPConn) { require.NoError(t, peer.CloseWrite()) }, io.EOF,
			io.EOF},
		{"reset", func(t *testing.T, _ *tcpStream, peer *net.TCPConn) { reset(t, peer) }, syscall.ECONNRESET,
			syscall.ECONNRESET},
		{"FIN and reset", func(t *testing.T, _ *tcpStream, peer *net.TCPConn) {
			require.NoError(t, peer.CloseWrite())
			reset(t, peer)
		}, syscall.ECONNRESET, syscall.ECONNRESET},
		{"FIN and reset, the writer was told", func(t *testing.T, s *tcpStream, peer *net.TCPConn) {
			require.NoError(t, peer.CloseWrite())
			reset(t, peer)
			closed(t, s)
			_, err := s.write([][]byte{{1}})
			require.ErrorIs(t, err, syscall.EPIPE)
		}, syscall.EPIPE, syscall.EPIPE},
		{"FIN and reset, the writer comes with what it was told", func(t *testing.T, s *tcpStream, peer *net.TCPConn) {
			require.NoError(t, peer.CloseWrite())
			reset(t, peer)
			closed(t, s)
			_, err := syscall.Write(s.fd, []byte{1}) // like s.write, up to where it would record the error
			require.ErrorIs(t, err, syscall.EPIPE)
		}, errBroken, errBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			require.NoError(t, err)
			defer ln.Close()
			nc, err := net.Dial("tcp4", ln.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			peer, err := ln.AcceptTCP()
			require.NoError(t, err)
			defer peer.Close()
			st, err := newStream(nc, time.Minute)
			require.NoError(t, err)
			s := st.(*tcpStream)
			c.fail(t, s, peer)
			if c.name != "FIN" {
				closed(t, s)
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for _, want := range []error{c.want, c.again} {
					for err = errWouldBlock; err == errWouldBlock; {
						_, err = s.read([][]byte{make([]byte, 8)})
					}
					require.ErrorIs(t, err, want)
				}
				require.Zero(t, time.Since(began), "the read has slept")
			})
		})
	}
}

// reset closes a connection with RST.
func reset(t *testing.T, nc *net.TCPConn) {
	require.NoError(t, nc.SetLinger(0))
	require.NoError(t, nc.Close())
}

// closed waits until the kernel has closed the connection.
func closed(t *testing.T, s *tcpStream) {
	require.Eventually(t, func() bool {
		info, ok := s.info()
		return ok && info.State == tcpClose
	}, patience, time.Millisecond)
}
