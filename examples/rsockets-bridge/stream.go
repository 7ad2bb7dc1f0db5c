// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"net"
)

// stream is one connection of the bridge: TCP, unix or rsocket.
type stream interface {
	net.Conn
	CloseWrite() error
}

// asStream returns a connection as a stream. Every kind of connection that the bridge makes is one.
func asStream(c net.Conn) (stream, error) {
	s, ok := c.(stream)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%T cannot end one direction", c)
	}
	return s, nil
}

// endTime is how long an rsocket waits for its peer's end, in seconds. The end of the program must
// not cut that off.
const endTime = 5

// finish closes a connection whose two directions have ended.
func finish(c stream) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok && registered(c) {
		_ = l.SetLinger(endTime)
	}
	_ = c.Close()
}

// abort closes a connection without waiting for anything, so that its peer notices that this is not
// the end of the data. Unix sockets know no such end; there the peer finds the connection closed.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// peerOf names the other end of an accepted connection. A client of a unix socket has no address,
// so that of the socket is told.
func peerOf(c net.Conn) string {
	if name := c.RemoteAddr().String(); name != "" && name != "@" {
		return name
	}
	return c.LocalAddr().String()
}
