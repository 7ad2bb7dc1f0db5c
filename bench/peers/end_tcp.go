// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// streamConn is a byte-stream connection: TCP, read according to the mode, or package rsocket.
type streamConn struct {
	net.Conn
	raw  syscall.RawConn // TCP only
	mode string
	mem  []byte // messages are sent from and received into it, in rotation
	at   int
}

func newStreamConn(c net.Conn, j *job) (*streamConn, error) {
	t := &streamConn{Conn: c, mode: j.mode, mem: make([]byte, j.memory())}
	touch(t.mem)
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return t, nil
	}
	var err error
	t.raw, err = tcp.SyscallConn()
	return t, err
}

// next returns the memory for the next message.
func (t *streamConn) next(size int) []byte {
	if t.at+size > len(t.mem) {
		t.at = 0
	}
	b := t.mem[t.at : t.at+size]
	t.at += size
	return b
}

// Read implements io.Reader. In modes other than modeGo it polls before it lets the goroutine
// sleep.
func (t *streamConn) Read(b []byte) (int, error) {
	if t.mode == modeGo || t.raw == nil {
		return t.Conn.Read(b)
	}
	n, failed := 0, error(nil)
	start := time.Now()
	err := t.raw.Read(func(fd uintptr) bool {
		for {
			if n, failed = read(fd, b); !nothingYet(failed) {
				return true
			}
			if t.mode == modeSpin && time.Since(start) > spin {
				start = time.Now()
				return false
			}
			runtime.Gosched()
		}
	})
	if err = errors.Join(err, failed); err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

func listenTCP(j *job, announce func(addr string)) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return serve(ln, j, announce)
}

// serve answers the other side until it closes the connections. In a ping-pong it answers every
// message with one of the same size; in a stream, it answers every message whose first byte is not
// 0 with one byte.
func serve(ln net.Listener, j *job, announce func(addr string)) (err error) {
	defer ln.Close()
	announce(ln.Addr().String())
	errs := make(chan error, j.conns)
	for range j.conns {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			errs <- answerStream(c, j)
		}()
	}
	for range j.conns {
		err = errors.Join(err, <-errs)
	}
	return err
}

func answerStream(c net.Conn, j *job) error {
	t, err := newStreamConn(c, j)
	if err != nil {
		return err
	}
	if j.work == workTurns {
		if _, err := t.takeTurns(j, false); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, t) // until the other side has closed
		return err
	}
	for {
		b := t.next(j.size)
		if _, err := io.ReadFull(t, b); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		switch {
		case j.work == "pingpong":
			_, err = t.Write(b)
		case b[0] != 0:
			_, err = t.Write(b[:1])
		}
		if err != nil {
			return err
		}
	}
}

func connectTCP(j *job, addr string) (f figures, err error) {
	return drive(j, func() (net.Conn, error) { return net.Dial("tcp", addr) })
}

// drive measures connections opened with dial.
func drive(j *job, dial func() (net.Conn, error)) (f figures, err error) {
	conns := make([]*streamConn, j.conns)
	for i := range conns {
		c, err := dial()
		if err != nil {
			return f, err
		}
		defer c.Close()
		if conns[i], err = newStreamConn(c, j); err != nil {
			return f, err
		}
	}
	switch j.work {
	case workTurns:
		f.one, err = conns[0].takeTurns(j, true)
		return f, err
	case "pingpong":
		f.one, err = timed(j.seconds, oneWay, func(d time.Duration) (int, error) { return conns[0].pingpong(j, d) })
		return f, err
	}
	f.one, err = timed(j.seconds, rate, func(d time.Duration) (int, error) {
		return together(conns, func(t *streamConn) (int, error) { return t.stream(j, d) })
	})
	return f, err
}

func (t *streamConn) pingpong(j *job, d time.Duration) (n int, err error) {
	for start := time.Now(); time.Since(start) < d; n++ {
		b := t.next(j.size)
		if _, err := t.Write(b); err != nil {
			return n, err
		}
		if _, err := io.ReadFull(t, b); err != nil {
			return n, err
		}
	}
	return n, nil
}

// stream sends messages for the duration d and returns the number of bytes that arrived.
func (t *streamConn) stream(j *job, d time.Duration) (n int, err error) {
	for start, last := time.Now(), false; !last; n += j.size {
		b := t.next(j.size)
		b[0] = 0
		if last = time.Since(start) >= d; last {
			b[0] = 1
		}
		if _, err := t.Write(b); err != nil {
			return n, err
		}
	}
	_, err = io.ReadFull(t, t.mem[:1])
	return n, err
}

// timed runs f for a fifth of d to warm up, then for d, and computes a figure from the second
// result.
func timed(d time.Duration, figureOf func(int, time.Duration) figure,
	f func(time.Duration) (int, error)) (figure, error) {
	if _, err := f(d / 5); err != nil {
		return 0, err
	}
	start := time.Now()
	n, err := f(d)
	return figureOf(n, time.Since(start)), err
}

// together runs f for every connection concurrently and adds up the results.
func together[C any](conns []C, f func(C) (int, error)) (sum int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			n, e := f(c)
			mu.Lock()
			defer mu.Unlock()
			sum, err = sum+n, errors.Join(err, e)
		})
	}
	wg.Wait()
	return sum, err
}
