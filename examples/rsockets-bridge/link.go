// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// errIdle is why an idle link is aborted.
var errIdle = errors.New("idle for too long")

// link joins a client's connection and the one to the target. A goroutine carries each direction:
//
//	open ---- end of data ----> CloseWrite of the other side; once both directions end: closed
//	  |
//	  +------ any error ------> both sides are aborted, as when the link is idle or cut off
//
// Only an orderly end of data is passed on as such.
type link struct {
	client, target     stream
	toTarget, toClient meter

	began time.Time
	last  atomic.Int64 // when bytes last moved, in nanoseconds after began

	ending sync.Once
	cause  error // why the link was aborted, nil if it was not; set in ending
}

// meter counts the bytes of one direction, for the link and for the bridge.
type meter struct {
	bytes atomic.Int64
	total interface{ Add(bytes int64) }
}

func newLink(client, target stream, m *metrics) *link {
	l := &link{client: client, target: target, began: time.Now()}
	l.toTarget.total, l.toClient.total = &m.toTarget, &m.toClient
	return l
}

// run carries bytes until both directions have ended or the link is aborted: by an error, because
// nothing moved for the duration idle (0: never), or because ctx is done. It returns why the link
// was aborted, or nil. Both sides are closed then.
func (l *link) run(ctx context.Context, idle time.Duration) error {
	defer context.AfterFunc(ctx, func() { l.abort(context.Cause(ctx)) })()
	if idle > 0 {
		watching, end := context.WithCancel(context.Background())
		defer end()
		go l.watch(watching, idle)
	}
	var other sync.WaitGroup
	other.Go(func() { l.carry(l.target, l.client, &l.toTarget) })
	l.carry(l.client, l.target, &l.toClient)
	other.Wait()
	l.ending.Do(func() {
		finish(l.client)
		finish(l.target)
	})
	return l.cause
}

// carry carries one direction until it ends.
func (l *link) carry(dst, src stream, m *meter) {
	err := l.copy(dst, src, m)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		l.abort(err)
	}
}

// buffers are for copies without an rsocket on either side.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// copy copies from src to dst until src ends. An rsocket copies from and to its own registered
// buffers.
func (l *link) copy(dst, src stream, m *meter) error {
	var err error
	switch {
	case registered(src):
		_, err = src.(io.WriterTo).WriteTo(tap{dst, l, m})
	case registered(dst):
		_, err = dst.(io.ReaderFrom).ReadFrom(tap{src, l, m})
	default:
		b := buffers.Get().(*[64 << 10]byte)
		defer buffers.Put(b)
		_, err = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{tap{src, l, m}}, b[:])
	}
	return err
}

// tap is one side of a copy; it counts what is read from or written to it.
type tap struct {
	stream stream
	link   *link
	meter  *meter
}

func (t tap) Read(p []byte) (int, error) {
	n, err := t.stream.Read(p)
	t.moved(n)
	return n, err
}

func (t tap) Write(p []byte) (int, error) {
	n, err := t.stream.Write(p)
	t.moved(n)
	return n, err
}

func (t tap) moved(bytes int) {
	if bytes > 0 {
		t.meter.bytes.Add(int64(bytes))
		t.meter.total.Add(int64(bytes))
		t.link.last.Store(int64(time.Since(t.link.began)))
	}
}

// watch aborts the link when no byte has moved for the duration idle.
func (l *link) watch(ctx context.Context, idle time.Duration) {
	for left := idle; left > 0; left = time.Duration(l.last.Load()) + idle - time.Since(l.began) {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return
		}
	}
	l.abort(errIdle)
}

// abort aborts both sides immediately. Only the first cause is kept.
func (l *link) abort(cause error) {
	l.ending.Do(func() {
		l.cause = cause
		abort(l.client)
		abort(l.target)
	})
}
