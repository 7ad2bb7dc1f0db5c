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

// errIdle is why a link ends on which nothing has moved for too long.
var errIdle = errors.New("idle for too long")

// link is a client's connection and the one to the target, joined. Each direction is carried by a
// goroutine:
//
//	direction     open ---- end of the data ----> CloseWrite of the other side      both done: both are closed
//	                |
//	                +------ any error ----------> both sides are aborted        so is a link that is idle, or cut off
//
// An end that a side has not asked for is never passed on as the end of the data.
type link struct {
	client, target     stream
	toTarget, toClient meter

	began time.Time
	last  atomic.Int64 // when bytes moved last, in nanoseconds after began

	ending sync.Once
	cause  error // why the link was aborted, nil if it was not; set in ending
}

// meter counts the bytes of one direction of a link, and of the bridge.
type meter struct {
	bytes atomic.Int64
	total interface{ Add(bytes int64) }
}

func newLink(client, target stream, m *metrics) *link {
	l := &link{client: client, target: target, began: time.Now()}
	l.toTarget.total, l.toClient.total = &m.toTarget, &m.toClient
	return l
}

// run carries bytes until both directions have ended, or the link is aborted: by an error, because
// nothing has moved for the time idle (0: never), or because ctx is done. It returns why the link
// was aborted, nil if it was not. Both sides are closed then.
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

// carry carries one direction to its end.
func (l *link) carry(dst, src stream, m *meter) {
	err := l.copy(dst, src, m)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		l.abort(err)
	}
}

// buffers are for copies of which neither side is an rsocket.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// copy copies from src to dst until src ends. An rsocket copies from and to its registered buffers
// by itself.
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

// tap is one side of a copy. What is read from it or written to it has moved.
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

// watch aborts the link when no byte has moved for the time idle.
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

// abort ends both sides at once. The cause of the first abort remains.
func (l *link) abort(cause error) {
	l.ending.Do(func() {
		l.cause = cause
		abort(l.client)
		abort(l.target)
	})
}
