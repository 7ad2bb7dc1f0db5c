// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// memoryNetwork is a siw.Network without a network, for one listener at a time.
type memoryNetwork struct {
	listener atomic.Pointer[memoryListener]
	dialed   atomic.Int32
	damage   atomic.Bool // flip a bit of what is sent next by those who dialled
}

func (n *memoryNetwork) Listen(_ context.Context, _, address string) (net.Listener, error) {
	l := &memoryListener{addr: namedAddr(address), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listener.Store(l)
	return l, nil
}

func (n *memoryNetwork) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	l := n.listener.Load()
	local := namedAddr(fmt.Sprint("dialled ", n.dialed.Add(1)))
	a, b := net.Pipe()
	select {
	case l.conns <- &memoryConn{Conn: b, local: l.addr, remote: local}:
		return &memoryConn{Conn: a, local: local, remote: l.addr, damage: &n.damage}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

type memoryConn struct {
	net.Conn
	local, remote net.Addr
	damage        *atomic.Bool
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

func (c *memoryConn) Write(b []byte) (int, error) {
	if c.damage != nil && c.damage.CompareAndSwap(true, false) {
		b = append([]byte(nil), b...)
		b[len(b)-6] ^= 0x10
	}
	return c.Conn.Write(b)
}
