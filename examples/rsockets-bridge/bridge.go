// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// bridge joins every connection of a listener to a new connection to the target.
type bridge struct {
	target      endpoint
	dial        func(ctx context.Context, e endpoint) (stream, error)
	maxConns    int           // 0: no limit
	dialTimeout time.Duration // how long dial may take
	idleTimeout time.Duration // 0: never
	log         *slog.Logger
	metrics     metrics
	links       sync.WaitGroup // one for each open link
}

// The delays after a transient error of Accept, such as running out of descriptors: the first one,
// which doubles up to the last one.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// accept accepts connections until the listener is closed or returns a permanent error, which
// accept returns. When ctx is done, the connections are aborted.
func (b *bridge) accept(ctx context.Context, ln net.Listener) error {
	pause := firstPause
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			pause = firstPause
			b.take(ctx, c)
		case errors.Is(err, net.ErrClosed):
			return nil
		case passes(err):
			b.log.Warn("cannot accept", "error", err, "pause", pause)
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		default:
			return err
		}
	}
}

// passes reports whether another Accept may succeed.
func passes(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
}

// take refuses a connection or serves it in a goroutine.
func (b *bridge) take(ctx context.Context, c net.Conn) {
	b.metrics.accepted.Add(1)
	if b.maxConns > 0 && b.metrics.active.Value() >= int64(b.maxConns) {
		b.metrics.refused.Add(1)
		b.log.Warn("refused: too many connections", "client", peerOf(c), "max-conns", b.maxConns)
		abort(c)
		return
	}
	b.metrics.active.Add(1)
	b.links.Go(func() {
		defer b.metrics.active.Add(-1)
		b.serve(ctx, c)
	})
}

// serve serves one connection until it ends, then logs one line about it.
func (b *bridge) serve(ctx context.Context, c net.Conn) {
	log := b.log.With("client", peerOf(c), "target", b.target)
	client, err := asStream(c)
	if err != nil {
		log.Error("not served", "error", err)
		return
	}
	target, err := b.connect(ctx)
	if err != nil {
		abort(client)
		if cut := context.Cause(ctx); cut != nil {
			b.metrics.aborted.Add(1)
			log.Warn("aborted", "error", cut)
			return
		}
		b.metrics.unreachable.Add(1)
		log.Error("target unreachable", "error", err)
		return
	}
	l := newLink(client, target, &b.metrics)
	err = l.run(ctx, b.idleTimeout)
	log = log.With("to_target", l.toTarget.bytes.Load(), "to_client", l.toClient.bytes.Load(), "took",
		time.Since(l.began))
	if err == nil {
		log.Info("done")
		return
	}
	b.metrics.aborted.Add(1)
	if errors.Is(err, errIdle) {
		b.metrics.idle.Add(1)
	}
	log.Warn("aborted", "error", err)
}

// connect connects to the target.
func (b *bridge) connect(ctx context.Context) (stream, error) {
	ctx, cancel := context.WithTimeout(ctx, b.dialTimeout)
	defer cancel()
	return b.dial(ctx, b.target)
}
