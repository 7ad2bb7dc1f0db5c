// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// stream is the byte stream below a connection. read and write never wait. read is called by the holder of the
// connection's receive role, write by the holder of its send role, waitReadable and waitWritable by one goroutine each. When
// the peer has taken nothing of what is to be sent for the NIC's PeerTimeout, one of them returns errStalled. A call that
// comes after the one that was told why the stream has failed returns errBroken or EPIPE.
type stream interface {
	// read fills bufs as far as bytes are there. It returns errWouldBlock if there are none, io.EOF after the last.
	read(bufs [][]byte) (int, error)
	// write takes as much of bufs as there is room for. It returns errWouldBlock if there is none.
	write(bufs [][]byte) (int, error)
	// waitReadable calls f, and again whenever bytes may have arrived, until f reports that it is done. It returns early,
	// with an error, after interrupt.
	waitReadable(f func() (done bool)) error
	// waitWritable calls f, and again whenever room may have become free, until f reports that it is done. It returns early,
	// with an error, after interrupt.
	waitWritable(f func() (done bool)) error
	// lowWater has waitReadable call f only when n bytes are there, or the end of the stream; 1 is how it begins. It reports false
	// if that cannot be done. It may be called at any time before finish.
	lowWater(n int) bool
	// interrupt ends waitReadable and waitWritable for good.
	interrupt()
	// drainAndClose sends tail, tells the peer that nothing more comes, drops what arrives until the peer has ended too, and closes.
	// It gives up at the deadline; without one it closes at once, and what has not been sent is dropped if that can be done. The
	// waits have returned before.
	drainAndClose(tail []byte, deadline time.Time)
	// segment is the largest number of bytes that travel together at present (TCP's maximum segment size), 0 if that is unknown.
	// The holder of the send role calls it, and who has made the stream.
	segment() int
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// waker is a stream whose waitReadable may be called by different goroutines, one after the other.
type waker interface {
	// wake has waitReadable call f soon.
	wake()
}

var (
	errWouldBlock = errors.New("would block")
	errStalled    = errors.New("peer takes no data")
	errBroken     = fmt.Errorf("stream has failed: %w", syscall.ECONNRESET) // the usual failure
)

// finishConn is stream.finish for a net.Conn with nobody else on it.
func finishConn(conn net.Conn, tail []byte, deadline time.Time) {
	defer conn.Close()
	if deadline.IsZero() {
		if l, ok := untapped(conn).(interface{ SetLinger(sec int) error }); ok {
			_ = l.SetLinger(0)
		}
		return
	}
	_ = conn.SetDeadline(deadline)
	if len(tail) > 0 {
		if _, err := conn.Write(tail); err != nil {
			return
		}
	}
	half, ok := untapped(conn).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	// What is unread when a socket is closed makes the kernel send a reset, which can take away what the peer has not read yet.
	_, _ = io.Copy(io.Discard, conn)
}
