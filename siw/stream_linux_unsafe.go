// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package siw

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIovecs is UIO_MAXIOV, the most pieces that one system call takes.
const maxIovecs = 1024

// tcpStream is a TCP socket, used directly: readv and writev on registered memory, without copies and without the race
// detector's knowledge, and waits in the runtime's poller, which park no thread.
type tcpStream struct {
	*net.TCPConn
	raw      syscall.RawConn
	patience time.Duration

	// The arguments and results of the calls into raw, which take functions that are made once: they would be allocated
	// for every call otherwise. rd belongs to the receive role, wr to the send role.
	rd, wr          transfer
	failed          atomic.Pointer[net.OpError] // the first error that a call got
	readFn, writeFn func(fd uintptr)
	segmentFn       func(fd uintptr)
	mss             int         // of segmentFn
	ready           func() bool // of waitReadable
	readyFn         func(fd uintptr) bool

	mu          sync.Mutex // orders interrupt and the setting of deadlines
	interrupted bool
}

// transfer is one read or write.
type transfer struct {
	one []byte  // the only piece, during the call
	iov *iovecs // or several
	n   int     // pieces in iov
	got int
	err error
}

type iovecs [maxIovecs]unix.Iovec

// iovecPool spares the idle connections the space.
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
	s := &tcpStream{TCPConn: tcp, raw: raw, patience: patience}
	s.readFn = func(fd uintptr) { s.rd.call(unix.SYS_RECVFROM, unix.SYS_READV, fd) }
	s.segmentFn = func(fd uintptr) { s.mss, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) }
	s.readyFn = func(uintptr) bool { return s.ready() }
	s.writeFn = func(fd uintptr) { s.wr.call(unix.SYS_SENDTO, unix.SYS_WRITEV, fd) }
	// The kernel gives up a peer that acknowledges nothing, or whose window stays closed, for this long (tcp(7)).
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds()))
	})
	return s, nil
}

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

// unset forgets the memory.
func (t *transfer) unset() {
	t.one = nil
	if t.iov != nil {
		clear(t.iov[:t.n])
		iovecPool.Put(t.iov)
		t.iov = nil
	}
}

// call makes the system call one (recvfrom, sendto) for a single piece, and many for several. A single piece is what has been copied, or what is
// received: it is so small that the call is over sooner than the scheduler would make anything of it.
func (t *transfer) call(one, many, fd uintptr) {
	for {
		var n uintptr
		var errno unix.Errno
		if t.iov == nil {
			n, _, errno = unix.RawSyscall6(one, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.one))), uintptr(len(t.one)), unix.MSG_NOSIGNAL, 0, 0)
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
func (s *tcpStream) do(t *transfer, bufs [][]byte, fn func(uintptr), op string) (int, error) {
	t.set(bufs)
	err := s.raw.Control(fn)
	t.unset()
	if err != nil {
		return 0, err
	}
	if t.err != nil && t.err != errWouldBlock {
		return 0, s.fail(op, t.err)
	}
	return t.got, t.err
}

// fail notes an error of the socket.
func (s *tcpStream) fail(op string, errno error) error {
	err := &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
	s.failed.CompareAndSwap(nil, err)
	return err
}

func (s *tcpStream) read(bufs [][]byte) (int, error) {
	n, err := s.do(&s.rd, bufs, s.readFn, "read")
	afterRead()
	if n == 0 && err == nil {
		return 0, s.end()
	}
	return n, err
}

// end tells why nothing more is to be read. Only after a failure the connection is gone while both directions are open here.
// The socket tells of that once: now, unless a call has been told before.
func (s *tcpStream) end() error {
	info, ok := s.info()
	if !ok || info.State != tcpClose {
		return io.EOF
	}
	if err := s.failed.Load(); err != nil {
		return err
	}
	var errno int
	_ = s.raw.Control(func(fd uintptr) { errno, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	switch unix.Errno(errno) {
	case 0: // a writer has been told, and comes with it
		return errBroken
	case unix.EPIPE: // a reset behind a FIN
		return s.fail("read", unix.ECONNRESET)
	}
	return s.fail("read", unix.Errno(errno))
}

// tcpClose is TCP_CLOSE of <netinet/tcp.h>.
const tcpClose = 7

func (s *tcpStream) info() (info *unix.TCPInfo, ok bool) {
	err := s.raw.Control(func(fd uintptr) {
		var err error
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		ok = err == nil
	})
	return info, ok && err == nil
}

func (s *tcpStream) write(bufs [][]byte) (int, error) {
	beforeWrite()
	return s.do(&s.wr, bufs, s.writeFn, "write")
}

func (s *tcpStream) waitReadable(f func() bool) error {
	s.ready = f
	for {
		err := s.raw.Read(s.readyFn)
		if err == nil || !os.IsTimeout(err) || !s.setReadDeadline(time.Time{}) {
			return err
		}
	}
}

func (s *tcpStream) wake() { s.setReadDeadline(time.Unix(1, 0)) }

func (s *tcpStream) setReadDeadline(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.interrupted && s.SetReadDeadline(t) == nil
}

func (s *tcpStream) waitWritable(f func() bool) error {
	for seen := s.acknowledged(); ; {
		if !s.setWriteDeadline(time.Now().Add(s.patience)) {
			return net.ErrClosed
		}
		err := s.raw.Write(func(uintptr) bool { return f() })
		if err == nil {
			return nil // the deadline stays: it may be that of the next wait, which begins when f says that this one is done
		}
		if !os.IsTimeout(err) || s.isInterrupted() {
			return err
		}
		// The socket reports room only when a good part of its buffer is free. A peer that takes a little is not stalled.
		now := s.acknowledged()
		if now == seen {
			return errStalled
		}
		seen = now
	}
}

// acknowledged returns how many octets the peer has acknowledged since the connection began (tcpi_bytes_acked).
func (s *tcpStream) acknowledged() uint64 {
	if info, ok := s.info(); ok {
		return info.Bytes_acked
	}
	return 0
}

func (s *tcpStream) setWriteDeadline(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.interrupted && s.SetWriteDeadline(t) == nil
}

func (s *tcpStream) isInterrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interrupted
}

// hush sets SO_RCVLOWAT (socket(7)): the poller hears nothing of less, but of the end and of errors. Reads that do not wait get
// what there is all the same.
func (s *tcpStream) hush(n int) (done bool) {
	_ = s.raw.Control(func(fd uintptr) {
		done = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil
	})
	return done
}

func (s *tcpStream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted = true
	_ = s.SetDeadline(time.Unix(1, 0))
}

func (s *tcpStream) finish(tail []byte, deadline time.Time) { finishConn(s.TCPConn, tail, deadline) }

func (s *tcpStream) segment() int {
	_ = s.raw.Control(s.segmentFn)
	return s.mss
}
