// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// connection is an attempt to connect or accept, and later the connection. Its goroutine delivers
// the events in order:
//
//	attempt --> established --> disconnected
//	       \--> rejected, unreachable or connect error
//
// Close ends it in every state. No event is delivered afterwards.
type connection struct {
	owner  unsafe.Pointer
	ctx    context.Context // done when the program destroys the ID
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned
	id     atomic.Pointer[cm.ID]
}

func newConnection(owner unsafe.Pointer) *connection {
	c := &connection{owner: owner, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// run makes the connection by calling attempt, and delivers its events.
func (c *connection) run(attempt func() (*cm.ID, error)) {
	defer close(c.done)
	id, err := attempt()
	if err != nil {
		say("connection: %v", err)
		c.failed(err)
		return
	}
	c.id.Store(id)
	ord, ird := id.Depths()
	c.tell(cm.EventEstablished, 0, id.PrivateData(), ird, ord)
	select {
	case <-id.Done():
		say("connection ended: %v", id.Err())
		c.tell(cm.EventDisconnected, 0, nil, 0, 0)
	case <-c.ctx.Done():
	}
}

// failed delivers the failure of an attempt, with the status that a kernel iWARP device reports.
func (c *connection) failed(err error) {
	var refused *cm.RejectedError
	switch no := number(err); {
	case errors.As(err, &refused):
		c.tell(cm.EventRejected, -int(syscall.ECONNRESET), refused.PrivateData, max(0, refused.ORD),
			max(0, refused.IRD))
	case no == syscall.ECONNREFUSED, no == syscall.ECONNRESET:
		c.tell(cm.EventRejected, -int(no), nil, 0, 0)
	case no == syscall.ETIMEDOUT, no == syscall.EHOSTUNREACH, no == syscall.ENETUNREACH:
		c.tell(cm.EventUnreachable, -int(no), nil, 0, 0)
	default:
		c.tell(cm.EventConnectError, -int(no), nil, 0, 0)
	}
}

// tell delivers an event, unless the ID is being destroyed.
func (c *connection) tell(what cm.Event, status int, private []byte, resources, depth int) {
	if c.ctx.Err() != nil {
		return
	}
	e := C.struct_rnic_cm_event{event: C.int(what), status: C.int(status)}
	e.responder_resources, e.initiator_depth = C.int(min(resources, math.MaxUint8)), C.int(min(depth, math.MaxUint8))
	if id := c.id.Load(); id != nil {
		toC(id.LocalAddr(), &e.local)
		toC(id.RemoteAddr(), &e.remote)
	}
	setPrivate(&e, private)
	tellCM(c.owner, &e)
}

func setPrivate(e *C.struct_rnic_cm_event, private []byte) {
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&e.private_data)), len(e.private_data)), private)
	e.private_len = C.uint32_t(n)
}

func (c *connection) Close() error {
	c.cancel()
	<-c.done
	if id := c.id.Load(); id != nil {
		if err := id.Close(); err != nil {
			say("%v", err)
		}
	}
	return nil
}

// param converts the program's parameters. As a depth, 0 in C means none, and -1 as much as the
// device supports.
func param(p *C.struct_rnic_param) cm.ConnParam {
	number := func(v C.int) int {
		switch {
		case v < 0:
			return 0
		case v == 0:
			return cm.None
		}
		return int(v)
	}
	to := cm.ConnParam{ResponderResources: number(p.responder_resources), InitiatorDepth: number(p.initiator_depth),
		RetryCount: number(min(p.retry_count, 7)), RNRRetryCount: number(min(p.rnr_retry_count, 7))}
	if p.private_len > 0 {
		to.PrivateData = C.GoBytes(p.private_data, C.int(p.private_len))
	}
	return to
}

// turns delivers the process's connections to one address in the order in which the program
// requested them, because programs that open several rely on it. A connection attempt starts once
// the request of the previous one has been sent.
var turns = struct {
	mu   sync.Mutex // guards last
	last map[netip.AddrPort]chan struct{}
}{last: make(map[netip.AddrPort]chan struct{})}

// turn returns a channel to wait for, and a function to call when the next attempt may start.
func turn(to netip.AddrPort) (before <-chan struct{}, next func()) {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	before = turns.last[to]
	if before == nil {
		none := make(chan struct{})
		close(none)
		before = none
	}
	mine := make(chan struct{})
	turns.last[to] = mine
	return before, sync.OnceFunc(func() {
		turns.mu.Lock()
		if turns.last[to] == mine {
			delete(turns.last, to)
		}
		turns.mu.Unlock()
		close(mine)
	})
}

//export rnic_connect
func rnic_connect(owner unsafe.Pointer, context, qph C.uint32_t, from, to *C.struct_rnic_addr, p *C.struct_rnic_param,
	h *C.uint32_t) C.int {
	vctx, ok := get[*ibv_context](context)
	q, hasQP := get[*qp](qph)
	if !ok || !hasQP {
		return einval
	}
	c, cfg, addr, want := newConnection(owner),
		cm.Config{Device: device, Context: vctx.Context, Source: fromC(from), ReuseAddr: true}, fromC(to), param(p)
	if cfg.Source.Addr().IsUnspecified() {
		cfg.Source = netip.AddrPortFrom(netip.Addr{}, cfg.Source.Port())
	}
	if rc := keep(c, h); rc != 0 {
		close(c.done)
		return rc
	}
	before, next := turn(addr)
	go c.run(func() (*cm.ID, error) {
		defer next()
		select {
		case <-before:
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
		id, err := cm.Resolve(c.ctx, addr.String(), cfg)
		if err != nil {
			return nil, err
		}
		if err := id.Connect(usiw.WithRequestSent(c.ctx, next), q.QP, want); err != nil {
			return nil, errors.Join(err, id.Close())
		}
		return id, nil
	})
	return 0
}

//export rnic_accept
func rnic_accept(owner unsafe.Pointer, request, qph C.uint32_t, p *C.struct_rnic_param, h *C.uint32_t) C.int {
	r, ok := get[*cmRequest](request)
	q, hasQP := get[*qp](qph)
	if !ok || !hasQP {
		return einval
	}
	c, want := newConnection(owner), param(p)
	if rc := keep(c, h); rc != 0 {
		close(c.done)
		return rc
	}
	objects.take(request)
	go c.run(func() (*cm.ID, error) { return r.Accept(c.ctx, q.QP, want) })
	return 0
}

//export rnic_disconnect
func rnic_disconnect(h C.uint32_t) C.int {
	c, ok := get[*connection](h)
	if !ok {
		return einval
	}
	id := c.id.Load()
	if id == nil {
		return einval
	}
	if err := id.Disconnect(); err != nil && !errors.Is(err, verbs.ErrClosed) {
		return errno(err)
	}
	return 0
}
