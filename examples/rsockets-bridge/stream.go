// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"net"
)

// stream is a connection of the bridge: TCP, unix or rsocket.
type stream interface {
	net.Conn
	CloseWrite() error
}

// asStream returns a connection as a stream. Every kind of connection that the bridge creates
// implements it.
func asStream(c net.Conn) (stream, error) {
	s, ok := c.(stream)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%T cannot end one direction", c)
	}
	return s, nil
}

// endTime is how many seconds an rsocket waits for its peer to close. Exiting the program must not
// cut that short.
const endTime = 5

// finish closes a connection after both directions have ended.
func finish(c stream) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok && registered(c) {
		_ = l.SetLinger(endTime)
	}
	_ = c.Close()
}

// abort closes a connection without waiting, so that its peer can distinguish this from the end of
// data. Unix sockets cannot express that; there the peer sees a closed connection.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// peerOf returns the name of an accepted connection's peer. A client of a unix socket has no
// address, so the socket's own is returned.
func peerOf(c net.Conn) string {
	if name := c.RemoteAddr().String(); name != "" && name != "@" {
		return name
	}
	return c.LocalAddr().String()
}
