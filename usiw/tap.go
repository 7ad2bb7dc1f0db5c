// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"net"
	"time"
)

// Tap observes all bytes that a NIC's connections send and receive, including MPA frames. Package
// usiw/capture writes them to a file for Wireshark.
type Tap interface {
	// Packet is called with consecutive bytes of one direction of a connection, in stream order.
	// Calls for different connections and directions are concurrent. The NIC waits until the call
	// returns; p and its data are valid only during the call. Outgoing bytes are passed after the
	// socket has accepted them, so the answer to a message may be passed before the message.
	Packet(p *Packet)
}

// Packet is a sequence of consecutive bytes of one direction of a connection.
type Packet struct {
	Time          time.Time
	Local, Remote net.Addr
	Out           bool     // sent, not received
	Data          [][]byte // the bytes, possibly in several pieces
}

// tapConn passes the frames of connection set-up to a Tap.
type tapConn struct {
	net.Conn
	tap Tap
}

// tapped wraps nc if the NIC has a Tap.
func (d *device) tapped(nc net.Conn) net.Conn {
	if d.cfg.Tap == nil {
		return nc
	}
	return &tapConn{Conn: nc, tap: d.cfg.Tap}
}

func (c *tapConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.tap.Packet(&Packet{Time: time.Now(), Local: c.LocalAddr(), Remote: c.RemoteAddr(), Data: [][]byte{b[:n]}})
	}
	return n, err
}

// Write passes the bytes to the Tap before it sends them, so that the Tap never receives the answer
// first.
func (c *tapConn) Write(b []byte) (int, error) {
	c.tap.Packet(&Packet{Time: time.Now(), Local: c.LocalAddr(), Remote: c.RemoteAddr(), Out: true, Data: [][]byte{b}})
	return c.Conn.Write(b)
}

// untapped returns the connection that tapped wrapped, or nc itself.
func untapped(nc net.Conn) net.Conn {
	if t, ok := nc.(*tapConn); ok {
		return t.Conn
	}
	return nc
}

// tapTime returns the time stamp of a packet that is about to be sent or received, or zero if the
// NIC has no Tap.
func (c *conn) tapTime() (t time.Time) {
	if c.dev.cfg.Tap != nil {
		t = time.Now()
	}
	return t
}

// tap passes the first n bytes of pieces to the NIC's Tap.
func (c *conn) tap(when time.Time, out bool, pieces [][]byte, n int) {
	t := c.dev.cfg.Tap
	if t == nil || n == 0 {
		return
	}
	p := Packet{Time: when, Local: c.s.LocalAddr(), Remote: c.s.RemoteAddr(), Out: out}
	for _, b := range pieces {
		if n == 0 {
			break
		}
		k := min(n, len(b))
		p.Data = append(p.Data, b[:k])
		n -= k
	}
	t.Packet(&p)
}
