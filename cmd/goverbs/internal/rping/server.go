// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/output"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/shutdown"
	"github.com/goverbs/goverbs/verbs"
)

// serve is the server. It serves one client, whose report is p, or with Persistent every client.
func (r *run) serve(ctx context.Context, p *report) (err error) {
	ln, err := cm.Listen(ctx, r.serverAddr(), cm.Config{Device: r.dev})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ln.Close()) }()
	r.trace("device %s", devices.Text(ln.Devices()))
	r.trace("listening on %v", ln.Addr())
	late := shutdown.Late(ctx)
	if r.Persistent {
		return r.serveAll(ctx, ln, late)
	}
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	// Reject other clients immediately, instead of leaving them to wait.
	if err := ln.Close(); err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	return r.serveOne(ctx, req, late, p)
}

// serveAll serves each client in a separate goroutine until ctx is done. A client that fails does
// not affect the others.
func (r *run) serveAll(ctx context.Context, ln *cm.Listener, late <-chan struct{}) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		req, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		clients.Go(func() {
			p := r.newReport()
			err := because(ctx, r.serveOne(ctx, req, late, p))
			if err != nil && ctx.Err() == nil {
				r.note("client %v: %v", req.RemoteAddr(), err)
			}
			_ = r.conclude(p, err) // if it cannot print, the whole command ends
		})
	}
}

// serveOne accepts a client and serves it until it disconnects.
func (r *run) serveOne(ctx context.Context, req *cm.Request, late <-chan struct{}, p *report) error {
	r.trace("request from %v", req.RemoteAddr())
	p.Peer = req.RemoteAddr().String()
	e, err := r.newEndpoint(req.Context(), req.BindQP, p)
	if err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	if e.id, err = req.Accept(ctx, e.qp, connParam()); err == nil {
		e.connected()
		err = e.answerAll(ctx)
	}
	return errors.Join(err, shutdown.InTime(late, e.close))
}

// answerAll answers pings until the client disconnects.
func (e *endpoint) answerAll(ctx context.Context) error {
	for n := 0; ; n++ {
		from, err := e.receive(ctx, stateReadAdv)
		switch {
		case err == nil:
			if err = e.answer(ctx, n, from); err == nil {
				e.report.Pings++
			}
		case !errors.Is(err, errPeerGone):
		case n == 0:
			return fmt.Errorf("%w before its first ping", errPeerGone)
		case n < e.Count:
			return fmt.Errorf("%w after %d of %d pings", errPeerGone, n, e.Count)
		default:
			return nil
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
}

// answer reads ping n and writes it back to where the client then asks for it.
func (e *endpoint) answer(ctx context.Context, n int, from bufferInfo) error {
	e.trace("ping at %v", from)
	if from.size == 0 || int64(from.size) > int64(e.data.Len()) {
		return fmt.Errorf("the client has %d bytes, the server room for 1 to %d (-S)", from.size, e.data.Len())
	}
	if err := e.post(verbs.WRRDMARead, e.data, int(from.size), from); err != nil {
		return err
	}
	if _, err := e.await(ctx, verbs.WCRDMARead, stateReadComplete); err != nil {
		return err
	}
	e.trace("read")
	data := e.data.Bytes()[:from.size]
	if e.Validate {
		want := make([]byte, len(data))
		if fillPing(want, n); !bytes.Equal(data, want) {
			e.note("data mismatch!")
			return fmt.Errorf("%w: first in byte %d", errMismatch, firstDifference(data, want))
		}
	}
	text := pingText(data)
	if e.Verbose {
		if err := e.print("server ping data: %s", output.Printable(text)); err != nil {
			return err
		}
	}
	if err := e.tell(bufferInfo{}); err != nil {
		return err
	}
	to, err := e.receive(ctx, stateWriteAdv)
	if err != nil {
		return err
	}
	e.trace("pong to %v", to)
	pong := min(len(text)+1, len(data)) // including the terminating NUL
	if int64(to.size) < int64(pong) {
		return fmt.Errorf("the client has room for %d bytes of a pong of %d", to.size, pong)
	}
	if err := e.post(verbs.WRRDMAWrite, e.data, pong, to); err != nil {
		return err
	}
	if _, err := e.await(ctx, verbs.WCRDMAWrite, stateWriteComplete); err != nil {
		return err
	}
	e.trace("written")
	return e.tell(bufferInfo{})
}
