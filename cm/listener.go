// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// Listener accepts connection requests. All methods may be called concurrently.
type Listener struct {
	node    lifetime.Node
	vctx    *verbs.Context
	p       ProviderListener
	devices []*verbs.Device
	addr    net.Addr
}

// Listen listens on address, "host:port" (rdma_listen(3)). An empty host means every address of the
// device, port 0 any free port. ctx bounds only the call itself. The caller closes the listener.
func Listen(ctx context.Context, address string, cfg Config) (*Listener, error) {
	l, err := listen(ctx, address, cfg)
	return l, opError("Listen", address, err)
}

func listen(ctx context.Context, address string, cfg Config) (*Listener, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(address); err == nil && host == "" && cfg.AFOnly {
		return nil, fmt.Errorf("%w: AFOnly with an address of both families, %q", verbs.ErrInvalid, address)
	}
	l := new(Listener)
	if cfg.isAuto() {
		if err := l.listenAuto(ctx, address, cfg); err != nil {
			return nil, err
		}
	} else {
		p, err := cfg.choose()
		if err != nil {
			return nil, err
		}
		if l.p, err = p.Listen(ctx, address, cfg); err != nil {
			return nil, err
		}
		l.vctx, l.devices = cfg.Context, []*verbs.Device{cfg.Device}
	}
	if len(l.devices) > 0 {
		l.node.SetOwner(l.devices[0])
	}
	l.addr = l.p.Addr()
	_ = l.node.Init("cm.Listener", l.Close) // it has no parent that could refuse
	return l, nil
}

// Addr returns the address on which the listener listens.
func (l *Listener) Addr() net.Addr { return l.addr }

// Context returns the verbs context of the requests. If the address selected the device, each
// request has its own context, and Context returns the context of the first of the Devices.
func (l *Listener) Context() *verbs.Context { return l.vctx }

// Devices returns the devices on which the listener listens.
func (l *Listener) Devices() []*verbs.Device { return slices.Clone(l.devices) }

// Accept waits for the next request. The error Is ctx.Err() if ctx is done, and verbs.ErrClosed if
// the listener is closed.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	if l.node.Closed() {
		return nil, opError("Accept", l.addr.String(), verbs.ErrClosed)
	}
	p, err := l.p.Accept(ctx)
	if err != nil {
		return nil, opError("Accept", l.addr.String(), err)
	}
	r := &Request{vctx: l.vctx, p: p, local: p.LocalAddr(), remote: p.RemoteAddr()}
	if c, ok := p.(contexter); ok {
		r.vctx = c.context()
	}
	return r, nil
}

// contexter is a ProviderRequest that knows the context of the device on which it arrived.
type contexter interface{ context() *verbs.Context }

// Close makes pending calls of Accept return, and refuses the waiting requests. It does not affect
// connections, or requests that Accept has returned. Close is idempotent and may be called on nil.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	if first, _ := l.node.BeginClose(); !first { // it has no children
		return nil
	}
	err := l.p.Close()
	l.node.End()
	return opError("Close", l.addr.String(), err)
}
