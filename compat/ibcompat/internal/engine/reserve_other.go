// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package engine

import (
	"net"
	"strconv"
)

// reservation keeps a TCP port for this process until the device listens there. It is a listener that is closed then, because not
// every system lets a listener have a port beside a socket that is bound to it.
type reservation struct {
	ln   net.Listener // nil = closed
	port uint16
}

// reserve takes the first free port of n, counted from base.
func reserve(base uint16, n int) (r *reservation, err error) {
	for i := range n {
		port := base + uint16(i)
		var ln net.Listener
		if ln, err = net.Listen("tcp", ":"+strconv.Itoa(int(port))); err == nil {
			return &reservation{ln, port}, nil
		}
	}
	return nil, err
}

// listening is called before a listener is opened at the port.
func (r *reservation) listening() error { return r.close() }

func (r *reservation) close() (err error) {
	if r.ln != nil {
		err = r.ln.Close()
		r.ln = nil
	}
	return err
}
