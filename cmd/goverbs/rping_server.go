// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// serve is the server: of one client, or of all that come.
func (r *rping) serve(ctx context.Context) (err error) {
	ln, err := cm.Listen(ctx, r.endpoint(), cm.Config{Device: r.dev})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ln.Close()) }()
	r.trace("device %s", deviceList(ln.Devices()))
	r.trace("listening on %v", ln.Addr())
	late := lateAfter(ctx)
	if r.persistent {
		return r.serveAll(ctx, ln, late)
	}
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	// Others are refused instead of waiting for what does not come.
	if err := ln.Close(); err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	return r.serveOne(ctx, req, late)
}

// serveAll serves every client in a goroutine of its own until ctx is done. One that fails does not disturb others.
func (r *rping) serveAll(ctx context.Context, ln *cm.Listener, late <-chan struct{}) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		req, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		clients.Go(func() {
			if err := r.serveOne(ctx, req, late); err != nil && ctx.Err() == nil {
				r.note("client %v: %v", req.RemoteAddr(), err)
			}
		})
	}
}

// serveOne accepts a client and serves it until it disconnects.
func (r *rping) serveOne(ctx context.Context, req *cm.Request, late <-chan struct{}) error {
	r.trace("request from %v", req.RemoteAddr())
	e, err := r.newEnd(req.Context(), req.BindQP)
	if err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	if e.id, err = req.Accept(ctx, e.qp, rpingParam()); err == nil {
		e.connected()
		err = e.answerAll(ctx)
	}
	return errors.Join(err, inTime(late, e.close))
}

// answerAll answers pings until the client disconnects.
func (e *rpingEnd) answerAll(ctx context.Context) error {
	for n := 0; ; n++ {
		from, err := e.receive(ctx, rpingReadAdv)
		switch {
		case err == nil:
			err = e.answer(ctx, n, from)
		case !errors.Is(err, errPeerGone):
		case n == 0:
			return fmt.Errorf("%w before its first ping", errPeerGone)
		case n < e.count:
			return fmt.Errorf("%w after %d of %d pings", errPeerGone, n, e.count)
		default:
			return nil
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
}

// answer fetches the n-th ping, and writes it to where the client then says.
func (e *rpingEnd) answer(ctx context.Context, n int, from rpingInfo) error {
	e.trace("ping at %v", from)
	if from.size == 0 || int64(from.size) > int64(e.data.Len()) {
		return fmt.Errorf("the client has %d octets, the server room for 1 to %d (-S)", from.size, e.data.Len())
	}
	if err := e.post(verbs.WRRDMARead, e.data, int(from.size), from); err != nil {
		return err
	}
	if _, err := e.await(ctx, verbs.WCRDMARead, rpingReadComplete); err != nil {
		return err
	}
	e.trace("read")
	data := e.data.Bytes()[:from.size]
	if e.validate {
		want := make([]byte, len(data))
		if fillPing(want, n); !bytes.Equal(data, want) {
			e.note("data mismatch!")
			return fmt.Errorf("%w: first in octet %d", errMismatch, firstDifference(data, want))
		}
	}
	text := pingText(data)
	if e.verbose {
		if err := e.print("server ping data: %s", printable(text)); err != nil {
			return err
		}
	}
	if err := e.tell(rpingInfo{}); err != nil {
		return err
	}
	to, err := e.receive(ctx, rpingWriteAdv)
	if err != nil {
		return err
	}
	e.trace("pong to %v", to)
	pong := min(len(text)+1, len(data)) // with what ends the string
	if int64(to.size) < int64(pong) {
		return fmt.Errorf("the client has room for %d octets of a pong of %d", to.size, pong)
	}
	if err := e.post(verbs.WRRDMAWrite, e.data, pong, to); err != nil {
		return err
	}
	if _, err := e.await(ctx, verbs.WCRDMAWrite, rpingWriteComplete); err != nil {
		return err
	}
	e.trace("written")
	return e.tell(rpingInfo{})
}
