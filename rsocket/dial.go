// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/goverbs/goverbs/cm"
)

// Dial connects to "host:port" over the device chosen by the address, with the defaults of Config.
func Dial(address string) (*Conn, error) {
	d := Dialer{}
	return d.dial(context.Background(), "tcp", address)
}

// Dial calls DialContext with the background context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to address, "host:port". The network is "tcp", "tcp4" or "tcp6", named after
// the RDMA port space, or "rsocket", which means the same as "tcp". ctx applies only to the call.
// The returned net.Conn is a [*Conn].
//
// If the peer refuses the connection or has no listener, the error Is syscall.ECONNREFUSED. If it
// speaks another protocol, the error is a [*ProtocolError].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err // not a nil *Conn in a net.Conn
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (*Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	c, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: wireNet, Addr: name(address), Err: err}
	}
	return c, nil
}

// name is a net.Addr for an address in an error.
type name string

func (n name) Network() string { return wireNet }
func (n name) String() string  { return string(n) }

func (d *Dialer) connect(ctx context.Context, network, address string) (*Conn, error) {
	cfg, err := d.Config.fill()
	if err != nil {
		return nil, err
	}
	if address, err = inFamily(ctx, network, address); err != nil {
		return nil, err
	}
	at := cfg.connection()
	at.Source = d.Source
	id, err := cm.Resolve(ctx, address, at)
	if err != nil {
		return nil, err
	}
	res, err := newResources(id.Context(), cfg)
	if err != nil {
		return nil, and(err, id.Close())
	}
	peer, err := func() (peer connData, err error) {
		if err = id.BindQP(res.qp); err != nil {
			return peer, err
		}
		if err = res.postAll(); err != nil {
			return peer, err
		}
		if err = id.Connect(ctx, res.qp, res.param()); err != nil {
			if errors.Is(err, cm.ErrRejected) && !errors.Is(err, syscall.ECONNREFUSED) {
				err = fmt.Errorf("%w: %w", syscall.ECONNREFUSED, err)
			}
			return peer, err
		}
		return parseConnData(id.PrivateData())
	}()
	if err != nil {
		return nil, and(err, id.Abort(), res.close())
	}
	c := newConn(res)
	c.start(id, &peer)
	return c, nil
}

// param returns the parameters of a connection. rsockets issue no Reads. On iWARP, one is announced
// nevertheless, as librdmacm does, because a zero-length Read may open a peer-to-peer connection.
func (r *resources) param() cm.ConnParam {
	p := cm.ConnParam{PrivateData: r.data(), InitiatorDepth: cm.None, ResponderResources: cm.None}
	if r.iwarp {
		p.InitiatorDepth = 1
	}
	return p
}

// inFamily checks the network. For "tcp4" and "tcp6" it replaces the host with an address of that
// family.
func inFamily(ctx context.Context, network, address string) (string, error) {
	var family string
	switch network {
	case "tcp", wireNet:
		return address, nil
	case "tcp4":
		family = "ip4"
	case "tcp6":
		family = "ip6"
	default:
		return "", net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if host == "" {
		if family == "ip4" {
			return net.JoinHostPort("0.0.0.0", port), nil
		}
		return net.JoinHostPort("::", port), nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Unmap().Is4() != (family == "ip4") {
			return "", &net.AddrError{Err: "no suitable address found", Addr: host}
		}
		return address, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, family, host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ips[0].String(), port), nil
}
