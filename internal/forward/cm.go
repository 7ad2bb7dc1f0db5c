// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// below is the same for the context below.
func below(cfg cm.Config) (cm.Config, error) {
	own, err := verbs.Own[*vcontext](cfg.Context.Provider())
	if err != nil {
		return cm.Config{}, err
	}
	cfg.Device, cfg.Context = nil, own.in
	return cfg, nil
}

// qpBelow is the QP behind one of the program's.
func qpBelow(handle *verbs.QP) (*verbs.QP, error) {
	own, err := verbs.Own[*qp](handle.Provider())
	if err != nil {
		return nil, err
	}
	return own.in, nil
}

// Resolve implements cm.Provider.
func (d *device) Resolve(ctx context.Context, address string, cfg cm.Config) (cm.Route, error) {
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &route{conn{id}}, nil
}

// route is a way to a peer (cm.Route, cm.ProviderMulticaster).
type route struct{ conn }

func (r *route) Bind(handle *verbs.QP) error {
	in, err := qpBelow(handle)
	if err != nil {
		return err
	}
	return r.BindQP(in)
}

func (r *route) Connect(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	in, err := qpBelow(handle)
	if err != nil {
		return nil, err
	}
	if err := r.ID.Connect(ctx, in, param); err != nil {
		return nil, err
	}
	return &r.conn, nil
}

// conn is a connection (cm.ProviderConn, cm.ProviderDatagram, cm.ProviderMulticaster).
type conn struct{ *cm.ID }

func (c conn) JoinMulticast(ctx context.Context, handle *verbs.QP, group netip.Addr) (cm.Datagram, func() error, error) {
	in, err := qpBelow(handle)
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	m, err := c.ID.JoinMulticast(ctx, in, group)
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	return m.Datagram, m.Leave, nil
}

// Listen implements cm.Provider.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	ln, err := cm.Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return listener{ln}, nil
}

// listener is cm.ProviderListener.
type listener struct{ *cm.Listener }

func (l listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return request{r}, nil
}

// request is cm.ProviderRequest.
type request struct{ *cm.Request }

func (r request) Bind(handle *verbs.QP) error {
	in, err := qpBelow(handle)
	if err != nil {
		return err
	}
	return r.BindQP(in)
}

func (r request) Accept(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	in, err := qpBelow(handle)
	if err != nil {
		return nil, err
	}
	id, err := r.Request.Accept(ctx, in, param)
	if err != nil {
		return nil, err
	}
	return conn{id}, nil
}
