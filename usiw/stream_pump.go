// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/internal/regmem"
)

// pumpBuffer is how many bytes a pumpStream buffers in each direction.
const pumpBuffer = 128 << 10

// pumpWrite is how many bytes are passed to one Write. A Write that moves no byte within the
// patience ends the stream.
const pumpWrite = 16 << 10

// pumpStream turns any net.Conn into a stream: one goroutine reads into a buffer, another writes
// from a second buffer. It serves in-memory connections, and all connections on systems other than
// Linux.
type pumpStream struct {
	net.Conn
	readable, writable chan struct{} // hold a token when the buffers have changed
	stop               chan struct{} // closed by interrupt
	patience           time.Duration // how long the peer may accept no data although some are waiting
	once               sync.Once
	done               sync.WaitGroup // the two goroutines

	mu     sync.Mutex // guards the fields below
	space  sync.Cond  // signalled when in has room again or the stream ends
	work   sync.Cond  // signalled when out has bytes or the stream ends
	in     []byte     // received, not read yet
	inErr  error      // why no more will be received
	out    []byte     // written, not sent yet
	outErr error      // why no more can be sent
	ending bool       // interrupt was called
}

func newPumpStream(conn net.Conn, patience time.Duration) *pumpStream {
	s := &pumpStream{Conn: conn, patience: patience, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		stop: make(chan struct{})}
	s.space.L, s.work.L = &s.mu, &s.mu
	s.done.Go(s.receive)
	s.done.Go(s.transmit)
	return s
}

func (s *pumpStream) receive() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Conn.Read(buf)
		s.mu.Lock()
		for len(s.in)+n > pumpBuffer && !s.ending {
			s.space.Wait()
		}
		s.in = append(s.in, buf[:n]...)
		s.inErr = err
		ending := s.ending
		s.mu.Unlock()
		queue.Signal(s.readable)
		if err != nil || ending {
			return
		}
	}
}

func (s *pumpStream) transmit() {
	var buf []byte
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.ending {
			s.work.Wait()
		}
		if len(s.out) == 0 {
			s.mu.Unlock()
			return
		}
		if !s.ending {
			_ = s.Conn.SetWriteDeadline(time.Now().Add(s.patience))
		}
		buf = append(buf[:0], s.out[:min(len(s.out), pumpWrite)]...)
		s.mu.Unlock()
		// out keeps the bytes until they are sent, so that they count towards the buffer limit.
		n, err := s.Conn.Write(buf)
		s.mu.Lock()
		s.out = s.out[:copy(s.out, s.out[n:])]
		switch {
		case err == nil, n > 0 && isTimeout(err) && !s.ending:
			err = nil
		case isTimeout(err) && !s.ending:
			err = errStalled
		}
		if err != nil {
			s.outErr, s.out = err, nil
		}
		s.mu.Unlock()
		queue.Signal(s.writable)
		if err != nil {
			queue.Signal(s.readable)
			return
		}
	}
}

func (s *pumpStream) read(bufs [][]byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bufs {
		k := copy(b, s.in[n:])
		n += k
	}
	s.in = s.in[:copy(s.in, s.in[n:])]
	if n > 0 {
		s.space.Signal()
		return n, nil
	}
	if s.inErr != nil {
		return 0, s.inErr
	}
	if s.outErr != nil {
		return 0, s.outErr
	}
	return 0, errWouldBlock
}

func (s *pumpStream) write(bufs [][]byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outErr != nil {
		return 0, s.outErr
	}
	for _, b := range bufs {
		k := min(len(b), pumpBuffer-len(s.out))
		at := len(s.out)
		s.out = slices.Grow(s.out, k)[:at+k]
		regmem.Fetch(s.out[at:], b[:k])
		n += k
		if k < len(b) {
			break
		}
	}
	if n == 0 {
		return 0, errWouldBlock
	}
	s.work.Signal()
	return n, nil
}

func (s *pumpStream) waitReadable(f func() bool) error {
	for !f() {
		select {
		case <-s.readable:
		case <-s.stop:
			return net.ErrClosed
		}
	}
	return nil
}

func (s *pumpStream) waitWritable(f func() bool) error {
	for !f() {
		select {
		case <-s.writable:
		case <-s.stop:
			return net.ErrClosed
		}
	}
	return nil
}

func (s *pumpStream) lowWater(int) bool { return false }

func (s *pumpStream) interrupt() {
	s.once.Do(func() {
		s.mu.Lock()
		s.ending = true
		s.mu.Unlock()
		s.space.Broadcast()
		s.work.Broadcast()
		close(s.stop)
	})
}

func (s *pumpStream) drainAndClose(ctx context.Context, tail []byte, deadline time.Time) {
	sent := deadline
	if sent.IsZero() {
		sent = time.Unix(1, 0)
	}
	_ = s.Conn.SetWriteDeadline(sent)
	_ = s.Conn.SetReadDeadline(time.Unix(1, 0)) // ends receive; finishConn reads from here on
	s.done.Wait()
	s.mu.Lock()
	broken := s.outErr != nil || s.inErr != nil && s.inErr != io.EOF && !isTimeout(s.inErr)
	s.mu.Unlock()
	if broken {
		s.Conn.Close()
		return
	}
	finishConn(ctx, s.Conn, tail, deadline)
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

func (s *pumpStream) segment() int { return 0 }
