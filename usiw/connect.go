// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// namedAddr is the address of an endpoint in a configured Network. The name has no meaning to the
// host.
type namedAddr string

func (namedAddr) Network() string  { return "usiw" }
func (a namedAddr) String() string { return string(a) }

// isHost reports whether connections use the host's TCP.
func (d *device) isHost() bool {
	_, ok := d.cfg.Network.(hostNetwork)
	return ok
}

// HostAddr implements cm.ProviderAddresser.
func (d *device) HostAddr() (at netip.Addr, ok bool) { return d.cfg.Addr, d.isHost() }

// route is a resolved route to a peer (cm.Route).
type route struct {
	dev    *device
	remote net.Addr
	source netip.AddrPort
	reuse  bool // reuse the local port
}

func (r *route) RemoteAddr() net.Addr { return r.remote }

// PortNum implements cm.Route.
func (r *route) PortNum() int { return 1 }

// Bind implements cm.Route.
func (r *route) Bind(qp *verbs.QP) error { return cmprovider.InitQP(qp) }

// Close implements cm.Route.
func (r *route) Close() error { return nil }

// Resolve implements cm.Provider.
func (d *device) Resolve(ctx context.Context, address string, cfg cm.Config) (cm.Route, error) {
	if err := d.accepts(&cfg); err != nil {
		return nil, err
	}
	remote, err := d.lookup(ctx, address, cfg.Source)
	if err != nil {
		return nil, err
	}
	return &route{dev: d, remote: remote, source: cfg.Source, reuse: cfg.ReuseAddr}, nil
}

// accepts returns an error if the device cannot create connections or listeners with cfg.
func (d *device) accepts(cfg *cm.Config) error {
	switch {
	case d.guard.Closed():
		return verbs.ErrClosed
	case cfg.PortSpace == cm.PortSpaceUDP:
		return fmt.Errorf("%w: port space udp on %v", verbs.ErrNotSupported, cfg.Device)
	case cfg.TOS != 0:
		return fmt.Errorf("%w: a type of service on %v", verbs.ErrNotSupported, cfg.Device)
	case cfg.AckTimeout != 0:
		return fmt.Errorf("%w: an acknowledgement time-out on %v: TCP has its own", verbs.ErrNotSupported, cfg.Device)
	}
	return nil
}

// lookup resolves the address of a peer.
func (d *device) lookup(ctx context.Context, address string, source netip.AddrPort) (net.Addr, error) {
	if !d.isHost() {
		if source.IsValid() {
			return nil, fmt.Errorf("%w: a source address on a configured Network", verbs.ErrNotSupported)
		}
		return namedAddr(address), nil
	}
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		return nil, fmt.Errorf("%w: port 0 in %q", verbs.ErrInvalid, address)
	}
	if host == "" {
		return nil, fmt.Errorf("%w: no host in %q", verbs.ErrInvalid, address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	local := d.cfg.Addr
	if source.Addr().IsValid() {
		local = source.Addr()
	}
	// Use the family of the local address if there is one, otherwise prefer IPv4, as
	// net.ResolveTCPAddr does.
	for _, v4 := range []bool{true, false} {
		for _, ip := range ips {
			ip = ip.Unmap()
			if ip.Is4() == v4 && (!local.IsValid() || local.Unmap().Is4() == v4) {
				return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(port))), nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %s has no address of the family of %s", verbs.ErrInvalid, host, local)
}

// splitAddress splits "host:port" and checks the port.
func splitAddress(address string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(service); err != nil {
		if port, err = net.LookupPort("tcp", service); err != nil {
			return "", 0, err
		}
	}
	if port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%w: port %d in %q is not from 0 to 65535", verbs.ErrInvalid, port, address)
	}
	return host, port, nil
}

// Connect implements cm.Route.
func (r *route) Connect(ctx context.Context, qp *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	d := r.dev
	want, err := d.depths(&param)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(param.PrivateData, d.cfg.Rev > 1); err != nil {
		return nil, err
	}
	return d.establish(ctx, qp, func(ctx context.Context) (net.Conn, setup, error) {
		began, timeout := time.Now(), d.cfg.setupTimeout(true)
		dialCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		nc, err := d.dial(dialCtx, r.remote, r.source, r.reuse)
		if err != nil {
			if ctx.Err() == nil && dialCtx.Err() != nil {
				err = fmt.Errorf("%w after %v", cm.ErrSetupTimeout, timeout)
			}
			return nil, setup{}, err
		}
		nc = d.tapped(nc)
		var agreed setup
		err = bounded(ctx, nc, began, timeout, func() (err error) {
			agreed, err = d.initiate(ctx, nc, want, param.PrivateData)
			return err
		})
		return nc, agreed, err
	})
}

// establish runs one attempt to connect a QP. exchange returns a stream on which both sides have
// exchanged their MPA frames, and the agreed parameters.
func (d *device) establish(ctx context.Context, handle *verbs.QP,
	exchange func(context.Context) (net.Conn, setup, error)) (*conn, error) {
	q, err := verbs.Own[*qp](handle.Provider())
	if err != nil {
		return nil, err
	}
	if q.dev != d {
		return nil, &verbs.ForeignError{Want: "a QP of " + d.cfg.Name, Got: "one of " + q.dev.cfg.Name}
	}
	if d.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := q.beginSetup(cancel); err != nil {
		return nil, err
	}
	defer q.endSetup()
	nc, agreed, err := exchange(attempt)
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		if ctx.Err() == nil && attempt.Err() != nil && errors.Is(err, attempt.Err()) {
			return nil, fmt.Errorf("the QP failed or was closed during connection set-up: %w", verbs.ErrClosed)
		}
		return nil, err
	}
	return newConn(q, nc, agreed)
}

// dial opens the stream. If the local address cannot be used, the error names it.
func (d *device) dial(ctx context.Context, remote net.Addr, source netip.AddrPort, reuse bool) (net.Conn, error) {
	if !d.isHost() {
		return d.cfg.Network.DialContext(ctx, "tcp", remote.String())
	}
	dialer := net.Dialer{KeepAlive: -1}
	if source.Port() == 0 && !source.Addr().IsValid() {
		source = netip.AddrPortFrom(d.cfg.Addr, 0)
	} else if !source.Addr().IsValid() {
		source = netip.AddrPortFrom(d.cfg.Addr, source.Port())
	}
	if source.Addr().IsValid() || source.Port() != 0 {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(source)
		if reuse {
			dialer.Control = reuseAddr
		}
	}
	return dialer.DialContext(ctx, "tcp", remote.String())
}
