// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/goverbs/goverbs/verbs"
)

// sockets creates listeners and connections of every scheme.
type sockets struct {
	device *verbs.Device // for rsockets; nil if no endpoint is one
}

// listen listens at an endpoint.
func (s *sockets) listen(ctx context.Context, e endpoint) (net.Listener, error) {
	switch e.scheme {
	case schemeRSocket:
		return listenRSocket(ctx, s.device, e.address)
	case schemeUnix:
		ln, err := new(net.ListenConfig).Listen(ctx, e.scheme, e.address)
		if errors.Is(err, syscall.EADDRINUSE) && abandoned(e.address) {
			if err := os.Remove(e.address); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			return new(net.ListenConfig).Listen(ctx, e.scheme, e.address)
		}
		return ln, err
	default:
		return new(net.ListenConfig).Listen(ctx, e.scheme, e.address)
	}
}

// abandoned reports whether a path is a socket that no process is listening on, as left behind by a
// killed program.
func abandoned(path string) bool {
	c, err := net.Dial(schemeUnix, path)
	if err == nil {
		c.Close()
	}
	info, statErr := os.Lstat(path)
	return errors.Is(err, syscall.ECONNREFUSED) && statErr == nil && info.Mode()&fs.ModeSocket != 0
}

// dial connects to an endpoint.
func (s *sockets) dial(ctx context.Context, e endpoint) (stream, error) {
	var c net.Conn
	var err error
	if e.scheme == schemeRSocket {
		c, err = dialRSocket(ctx, s.device, e.address)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, e.scheme, e.address)
	}
	if err != nil {
		return nil, err
	}
	return asStream(c)
}

// url returns the address of an endpoint's listener, with the actual port if it was 0.
func (e endpoint) url(ln net.Listener) string { return fmt.Sprintf("%s://%s", e.scheme, ln.Addr()) }
