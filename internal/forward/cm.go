// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// cfgBelow returns cfg for the context below.
func cfgBelow(cfg cm.Config) (cm.Config, error) {
	in, err := below[verbs.Context](cfg.Context.Provider())
	if err != nil {
		return cm.Config{}, err
	}
	cfg.Device, cfg.Context = nil, in
	return cfg, nil
}

// Resolve finds the route to address, see cm.Provider.
func Resolve(ctx context.Context, address string, cfg cm.Config) (*Route, error) {
	cfg, err := cfgBelow(cfg)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &Route{Conn{id}}, nil
}

// Route is a resolved route to a peer (cm.Route, cm.ProviderMulticaster).
type Route struct{ Conn }

func (r *Route) Bind(handle *verbs.QP) error {
	in, err := below[verbs.QP](handle.Provider())
	if err != nil {
		return err
	}
	return r.BindQP(in)
}

func (r *Route) Connect(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	in, err := below[verbs.QP](handle.Provider())
	if err != nil {
		return nil, err
	}
	if err := r.ID.Connect(ctx, in, param); err != nil {
		return nil, err
	}
	return &r.Conn, nil
}

// Conn is a connection (cm.ProviderConn, cm.ProviderDatagram, cm.ProviderMulticaster).
type Conn struct{ *cm.ID }

func (c Conn) JoinMulticast(ctx context.Context, handle *verbs.QP,
	group netip.Addr) (cm.Datagram, func() error, error) {
	in, err := below[verbs.QP](handle.Provider())
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	m, err := c.ID.JoinMulticast(ctx, in, group)
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	return m.Datagram, m.Leave, nil
}

// Listen accepts connections on address, see cm.Provider.
func Listen(ctx context.Context, address string, cfg cm.Config) (*Listener, error) {
	cfg, err := cfgBelow(cfg)
	if err != nil {
		return nil, err
	}
	ln, err := cm.Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &Listener{ln}, nil
}

// Listener implements cm.ProviderListener.
type Listener struct{ *cm.Listener }

// Next waits for the next connection request.
func (l *Listener) Next(ctx context.Context) (*Request, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &Request{r}, nil
}

func (l *Listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	r, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Request implements cm.ProviderRequest.
type Request struct{ *cm.Request }

func (r *Request) Bind(handle *verbs.QP) error {
	in, err := below[verbs.QP](handle.Provider())
	if err != nil {
		return err
	}
	return r.BindQP(in)
}

// Join accepts the request.
func (r *Request) Join(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (*Conn, error) {
	in, err := below[verbs.QP](handle.Provider())
	if err != nil {
		return nil, err
	}
	id, err := r.Request.Accept(ctx, in, param)
	if err != nil {
		return nil, err
	}
	return &Conn{id}, nil
}

func (r *Request) Accept(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	c, err := r.Join(ctx, handle, param)
	if err != nil {
		return nil, err
	}
	return c, nil
}
