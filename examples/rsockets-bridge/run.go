// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// errDrained is why connections that are still open after --drain-timeout are aborted.
var errDrained = errors.New("open for longer than --drain-timeout after the signal")

// run executes the program with the given options: it opens the device, listens, and serves
// connections until a signal. The states are
//
//	listening -- signal --> draining -- all connections are closed --------------> nil
//	    |                       +------ --drain-timeout: the rest is aborted ----> nil
//	    +------- the listener fails: draining, then its error
func run(ctx context.Context, o options, log *slog.Logger) (err error) {
	var s sockets
	if o.rdma() {
		if s.device, err = findDevice(o.device); err != nil {
			return err
		}
	}
	b := &bridge{
		target: o.dial, dial: s.dial,
		maxConns: o.maxConns, dialTimeout: o.dialTimeout, idleTimeout: o.idleTimeout, log: log,
	}
	if o.metrics != "" {
		address, err := b.metrics.serve(o.metrics)
		if err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
		log.Info("metrics", "url", fmt.Sprintf("http://%s/debug/vars", address))
	}
	listening, end := untilSignal(ctx, log)
	defer end()
	ln, err := s.listen(listening, o.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", o.listen, err)
	}
	closeListener := sync.OnceValue(ln.Close)
	defer context.AfterFunc(listening, func() { _ = closeListener() })()
	log.Info("listening", "listen", o.listen.url(ln), "dial", o.dial)

	serving, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	err = b.accept(serving, ln)
	if closeErr := closeListener(); err == nil {
		err = closeErr
	}
	log.Info("draining", "active", b.metrics.active.Value(), "drain-timeout", o.drainTimeout)
	late := time.AfterFunc(o.drainTimeout, func() { cut(errDrained) })
	defer late.Stop()
	b.links.Wait()
	return err
}
