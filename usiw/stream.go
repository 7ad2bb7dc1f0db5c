// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// stream is the byte stream that carries a connection. read and write never block. Only the holder
// of the connection's receive role calls read, and only the holder of its send role calls write.
// Calls of waitReadable never overlap, and neither do calls of waitWritable. If the peer has
// accepted no data for the NIC's PeerTimeout although some are waiting, one of these calls returns
// errStalled. Only one call returns the cause of a failure; later calls return errBroken or EPIPE.
type stream interface {
	// read fills bufs with bytes that have arrived. It returns errWouldBlock if there are none, and
	// io.EOF at the end of the stream.
	read(bufs [][]byte) (int, error)
	// write accepts as many bytes of bufs as there is room for. It returns errWouldBlock if there
	// is no room.
	write(bufs [][]byte) (int, error)
	// waitReadable calls f at once, and again whenever bytes may have arrived, until f returns
	// true. After interrupt it returns an error.
	waitReadable(f func() (done bool)) error
	// waitWritable calls f at once, and again whenever there may be room, until f returns true.
	// After interrupt it returns an error.
	waitWritable(f func() (done bool)) error
	// lowWater makes waitReadable call f only once n bytes have arrived or the stream has ended; n
	// is initially 1. It reports false if this cannot be set. It may be called at any time before
	// drainAndClose.
	lowWater(n int) bool
	// interrupt permanently ends waitReadable and waitWritable.
	interrupt()
	// drainAndClose sends tail, signals the end of the stream to the peer, discards received bytes
	// until the peer ends the stream too, and closes it. It closes the stream at the deadline at
	// the latest, without waiting for the peer. With a zero deadline, or once ctx is done, it
	// closes at once and discards unsent data where the system permits: TCP sends a reset. Both
	// waitReadable and waitWritable must have returned.
	drainAndClose(ctx context.Context, tail []byte, deadline time.Time)
	// segment returns the largest number of bytes that the network currently carries in one unit
	// (TCP's maximum segment size), or 0 if unknown. It is called by the holder of the send role,
	// or by the goroutine that created the stream.
	segment() int
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// waker is a stream whose waitReadable different goroutines may call, one after the other.
type waker interface {
	// wake makes waitReadable call f soon.
	wake()
}

var (
	errWouldBlock = errors.New("would block")
	errStalled    = errors.New("peer takes no data")
	errBroken     = fmt.Errorf("stream has failed: %w", syscall.ECONNRESET) // the usual cause
)

// finishConn implements stream.drainAndClose for a net.Conn that no other goroutine uses.
func finishConn(ctx context.Context, conn net.Conn, tail []byte, deadline time.Time) {
	defer conn.Close()
	defer func() {
		if deadline.IsZero() || ctx.Err() != nil {
			if l, ok := untapped(conn).(interface{ SetLinger(sec int) error }); ok {
				_ = l.SetLinger(0)
			}
		}
	}()
	if deadline.IsZero() {
		return
	}
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if len(tail) > 0 {
		if _, err := conn.Write(tail); err != nil {
			return
		}
	}
	half, ok := untapped(conn).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	// If a socket is closed with unread bytes, the kernel sends a reset, and the peer may lose data
	// that it has not read yet.
	_, _ = io.Copy(io.Discard, conn)
}
