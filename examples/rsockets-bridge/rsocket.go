// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"net"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// backlog is how many rsockets may wait to be accepted: many clients may connect at the same time.
const backlog = 1024

// listenRSocket listens for rsockets on a device.
func listenRSocket(ctx context.Context, device *verbs.Device, address string) (net.Listener, error) {
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: device}, Backlog: backlog}
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return ln, nil
}

// dialRSocket connects an rsocket over a device.
func dialRSocket(ctx context.Context, device *verbs.Device, address string) (net.Conn, error) {
	d := rsocket.Dialer{Config: rsocket.Config{Device: device}}
	return d.DialContext(ctx, "tcp", address)
}

// registered reports whether a connection has registered buffers that it copies from and to, as an
// rsocket does.
func registered(c net.Conn) bool {
	_, is := c.(*rsocket.Conn)
	return is
}
