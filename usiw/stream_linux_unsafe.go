// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package usiw

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/regmem"
)

// maxIovecs is UIO_MAXIOV, the most pieces that one system call accepts.
const maxIovecs = 1024

// tcpStream is a TCP socket used directly: readv and writev on registered memory, without copies
// and invisible to the race detector. Its descriptor is not in the runtime's poller. A second
// descriptor of the socket is in the poller only while a goroutine waits there, so data that arrive
// at other times wake no thread.
type tcpStream struct {
	fd            int // used in a role, or by a goroutine that returns before drainAndClose
	local, remote net.Addr
	patience      time.Duration

	rd, wr          transfer                    // rd belongs to the receive role, wr to the send role
	readFn, writeFn func()                      // these make the system calls
	failed          atomic.Pointer[net.OpError] // the first error from a call

	ready   func() bool // the function passed to waitReadable
	readyFn func(fd uintptr) bool

	mu          sync.Mutex // guards the fields below, and setting deadlines
	file        *polled    // between open and shut
	room        *polled    // during waitWritable, unless it uses file
	interrupted bool
}

// polled is a descriptor in the runtime's poller.
type polled struct {
	*os.File
	raw  syscall.RawConn
	lone bool // made for one waitWritable
}

// poll returns a second descriptor of the socket, registered with the runtime's poller.
func (s *tcpStream) poll() (*polled, error) {
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &polled{File: os.NewFile(uintptr(fd), "usiw")}
	if p.raw, err = p.SyscallConn(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// transfer is one read or write.
type transfer struct {
	one []byte  // a single piece, during the call
	iov *iovecs // several pieces, during the call; nil if there is only one
	n   int     // number of pieces in iov
	got int
	err error
}

type iovecs [maxIovecs]unix.Iovec

// iovecPool holds iovecs, so that idle connections need none of their own.
var iovecPool = sync.Pool{New: func() any { return new(iovecs) }}

func newStream(conn net.Conn, patience time.Duration) (stream, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return newPumpStream(conn, patience), nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &tcpStream{local: tcp.LocalAddr(), remote: tcp.RemoteAddr(), patience: patience}
	s.readFn = func() { s.rd.call(unix.SYS_RECVFROM, unix.SYS_READV, uintptr(s.fd)) }
	s.writeFn = func() { s.wr.call(unix.SYS_SENDTO, unix.SYS_WRITEV, uintptr(s.fd)) }
	s.readyFn = func(uintptr) bool { return s.ready() }
	var failed error
	if err = raw.Control(func(fd uintptr) { s.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err == nil {
		err = os.NewSyscallError("fcntl", failed)
	}
	if err != nil {
		return nil, err
	}
	// The kernel ends the connection if the peer acknowledges nothing, or keeps its window closed,
	// for this long (tcp(7)).
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds()))
	return s, tcp.Close()
}

// open implements gatherer.
func (s *tcpStream) open() error {
	p, err := s.poll()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = p
	return nil
}

// shut implements gatherer.
func (s *tcpStream) shut() {
	s.mu.Lock()
	p := s.file
	s.file = nil
	s.mu.Unlock()
	p.Close()
}

func (s *tcpStream) LocalAddr() net.Addr { return s.local }

func (s *tcpStream) RemoteAddr() net.Addr { return s.remote }

func (t *transfer) set(bufs [][]byte) {
	if len(bufs) == 1 {
		t.one = bufs[0]
		return
	}
	t.iov, t.n = iovecPool.Get().(*iovecs), 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if t.n == maxIovecs {
			break
		}
		t.iov[t.n].Base = &b[0]
		t.iov[t.n].SetLen(len(b))
		t.n++
	}
}

// unset drops the references to the pieces.
func (t *transfer) unset() {
	t.one = nil
	if t.iov != nil {
		clear(t.iov[:t.n])
		iovecPool.Put(t.iov)
		t.iov = nil
	}
}

// call makes the system call one (recvfrom, sendto) for a single piece, or many (readv, writev) for
// several. The scheduler is not notified of a call for one piece: such a piece is a copy or a
// receive buffer, and the call returns before the scheduler could make use of the processor.
func (t *transfer) call(one, many, fd uintptr) {
	for {
		var n uintptr
		var errno unix.Errno
		if t.iov == nil {
			n, _, errno = unix.RawSyscall6(one, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.one))),
				uintptr(len(t.one)), unix.MSG_NOSIGNAL, 0, 0)
		} else {
			n, _, errno = unix.Syscall(many, fd, uintptr(unsafe.Pointer(&t.iov[0])), uintptr(t.n))
		}
		t.got, t.err = int(n), nil
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			t.got, t.err = 0, errWouldBlock
		default:
			t.got, t.err = 0, errno
		}
		return
	}
}

// do runs one transfer.
func (s *tcpStream) do(t *transfer, bufs [][]byte, call func(), op string) (int, error) {
	t.set(bufs)
	call()
	t.unset()
	if t.err != nil && t.err != errWouldBlock {
		return 0, s.fail(op, t.err)
	}
	return t.got, t.err
}

// fail returns a socket error, and records the first one.
func (s *tcpStream) fail(op string, errno error) error {
	err := &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(),
		Err: os.NewSyscallError(op, errno)}
	s.failed.CompareAndSwap(nil, err)
	return err
}

func (s *tcpStream) read(bufs [][]byte) (int, error) {
	n, err := s.do(&s.rd, bufs, s.readFn, "read")
	regmem.AfterRead()
	if n == 0 && err == nil {
		return 0, s.end()
	}
	return n, err
}

// end returns why no more bytes will arrive. If the socket's state is closed although both
// directions are open here, the connection failed. The socket reports the cause only once: now,
// unless an earlier call received it.
func (s *tcpStream) end() error {
	info, ok := s.info()
	if !ok || info.State != tcpClose {
		return io.EOF
	}
	if err := s.failed.Load(); err != nil {
		return err
	}
	errno, _ := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch unix.Errno(errno) {
	case 0: // a write received the cause, and its caller reports it
		return errBroken
	case unix.EPIPE: // a reset after a FIN
		return s.fail("read", unix.ECONNRESET)
	}
	return s.fail("read", unix.Errno(errno))
}

// tcpClose is TCP_CLOSE of <netinet/tcp.h>.
const tcpClose = 7

func (s *tcpStream) info() (info *unix.TCPInfo, ok bool) {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return info, err == nil
}

func (s *tcpStream) write(bufs [][]byte) (int, error) {
	regmem.BeforeWrite()
	return s.do(&s.wr, bufs, s.writeFn, "write")
}

func (s *tcpStream) waitReadable(f func() bool) error {
	s.mu.Lock()
	p := s.file
	s.mu.Unlock()
	if p == nil {
		return net.ErrClosed
	}
	s.ready = f
	for {
		err := p.raw.Read(s.readyFn)
		if err == nil || !os.IsTimeout(err) || !s.setReadDeadline(p, time.Time{}) {
			return err
		}
	}
}

func (s *tcpStream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil && !s.interrupted {
		_ = s.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (s *tcpStream) setReadDeadline(p *polled, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.interrupted && p.SetReadDeadline(t) == nil
}

func (s *tcpStream) waitWritable(f func() bool) error {
	for seen := s.acknowledged(); ; {
		p, err := s.enterRoom()
		if err != nil {
			return err
		}
		err = p.raw.Write(func(uintptr) bool { return f() })
		shut := s.leaveRoom(p)
		switch {
		case err == nil:
			return nil
		case s.isInterrupted():
			return err
		case shut:
			continue
		case !os.IsTimeout(err):
			return err
		}
		// The socket reports room only when a large part of its buffer is free. A peer that accepts
		// a few bytes is not stalled.
		now := s.acknowledged()
		if now == seen {
			return errStalled
		}
		seen = now
	}
}

// enterRoom returns the descriptor on which to wait for room, with a deadline set.
func (s *tcpStream) enterRoom() (p *polled, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted {
		return nil, net.ErrClosed
	}
	if p = s.file; p == nil {
		if p, err = s.poll(); err != nil {
			return nil, err
		}
		s.room, p.lone = p, true
	}
	return p, p.SetWriteDeadline(time.Now().Add(s.patience))
}

// leaveRoom releases the descriptor from enterRoom. It reports whether shut closed it. The deadline
// is left in place: it may already belong to the next wait, which can begin as soon as the function
// of this wait returns true.
func (s *tcpStream) leaveRoom(p *polled) (shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.lone {
		return s.file != p
	}
	if s.room == p {
		s.room = nil
	}
	p.Close()
	return false
}

// acknowledged returns how many bytes the peer has acknowledged since the connection began
// (tcpi_bytes_acked).
func (s *tcpStream) acknowledged() uint64 {
	if info, ok := s.info(); ok {
		return info.Bytes_acked
	}
	return 0
}

func (s *tcpStream) isInterrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interrupted
}

// lowWater sets SO_RCVLOWAT (socket(7)): the poller is not notified of fewer bytes, but it is of
// errors and the end of the stream. Reads that do not wait still return fewer bytes.
func (s *tcpStream) lowWater(n int) (done bool) {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil
}

func (s *tcpStream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted = true
	for _, p := range []*polled{s.file, s.room} {
		if p != nil {
			_ = p.SetDeadline(time.Unix(1, 0))
		}
	}
}

func (s *tcpStream) drainAndClose(ctx context.Context, tail []byte, deadline time.Time) {
	finishConn(ctx, &fileConn{os.NewFile(uintptr(s.fd), "usiw"), s}, tail, deadline)
}

// fileConn is the socket as a net.Conn, for finishConn.
type fileConn struct {
	*os.File
	s *tcpStream
}

func (c *fileConn) LocalAddr() net.Addr { return c.s.local }

func (c *fileConn) RemoteAddr() net.Addr { return c.s.remote }

func (c *fileConn) SetLinger(sec int) error {
	return unix.SetsockoptLinger(c.s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(sec)})
}

func (c *fileConn) CloseWrite() error { return unix.Shutdown(c.s.fd, unix.SHUT_WR) }

func (s *tcpStream) segment() int {
	n, _ := unix.GetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	return n
}
