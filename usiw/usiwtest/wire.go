// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/usiw"
)

// DefaultBuffer is the default of Wire.Buffer: how many bytes each direction of a connection holds.
const DefaultBuffer = 64 << 10

// firstPort is the first port assigned to listeners on port 0 and to diallers.
const firstPort = 49152

// Wire is an in-memory network. It implements usiw.Network. All methods may be called concurrently.
// The fields must be set before the wire is used.
type Wire struct {
	// Buffer is how many unread bytes a direction holds before its writer waits (0 =
	// DefaultBuffer).
	Buffer int
	// OnDial is called with each new connection before either side receives it, for example to set
	// up its faults (nil = not called).
	OnDial func(*Link)

	mu        sync.Mutex // guards the fields below
	listeners map[string]*listener
	links     []*Link
	ports     int // number of ports assigned
}

var _ usiw.Network = (*Wire)(nil)

// NewWire returns a network without listeners.
func NewWire() *Wire { return &Wire{listeners: make(map[string]*listener)} }

// Addr is an address on a wire, "host:port". The host is any name; the port is a decimal number.
type Addr string

// Network returns "tcp", which the wire replaces.
func (Addr) Network() string { return "tcp" }

// String returns the address.
func (a Addr) String() string { return string(a) }

// Listen returns a new listener. Port 0 is replaced by a free port. A listener without a host
// receives the connections to every host that has no listener of its own on that port. network must
// be "tcp". Listen does not wait; it fails if ctx is done.
func (w *Wire) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: Addr(address), Err: err}
	}
	host, port, err := split(ctx, network, address)
	if err != nil {
		return fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if port == "0" {
		port = w.port()
	}
	l := newListener(w, Addr(net.JoinHostPort(host, port)))
	if w.listeners[string(l.addr)] != nil {
		return fail(os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	w.listeners[string(l.addr)] = l
	return l, nil
}

// DialContext connects to a listener. It does not wait for the listener to accept the connection.
// It fails at once if there is no listener, or if 1,024 connections are waiting for it. network
// must be "tcp".
func (w *Wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: Addr(address), Err: err}
	}
	host, port, err := split(ctx, network, address)
	if err != nil {
		return fail(err)
	}
	w.mu.Lock()
	ln := w.listeners[net.JoinHostPort(host, port)]
	if ln == nil {
		ln = w.listeners[net.JoinHostPort("", port)]
	}
	var l *Link
	if ln != nil {
		l = newLink(Addr(net.JoinHostPort("dialer", w.port())), Addr(address), w.Buffer)
		w.links = append(w.links, l)
	}
	w.mu.Unlock()
	if ln == nil {
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	if w.OnDial != nil {
		w.OnDial(l)
	}
	if !ln.offer(l.listener) {
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	return l.dialer, nil
}

// Links returns all connections in dialling order, including those that have ended.
func (w *Wire) Links() []*Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.links)
}

// link returns the connection whose dialler has the given address.
func (w *Wire) link(dialer net.Addr) *Link {
	for _, l := range w.Links() {
		if l.dialer.local == dialer {
			return l
		}
	}
	return nil
}

// port returns a free port. The caller holds w.mu.
func (w *Wire) port() string {
	w.ports++
	return strconv.Itoa(firstPort + w.ports - 1)
}

// remove removes a listener that is being closed.
func (w *Wire) remove(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, string(l.addr))
}

// split validates the arguments of Listen and DialContext.
func split(ctx context.Context, network, address string) (host, port string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	if network != "tcp" {
		return "", "", net.UnknownNetworkError(network)
	}
	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", "", &net.AddrError{Err: fmt.Sprintf("port %q is not a number from 0 to 65535", port), Addr: address}
	}
	return host, port, nil
}
