// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// reservation keeps a TCP port for this process, so that nobody else listens there before the device does. It is a socket that is
// bound to every address and does not listen, and a name.
//
// The socket has SO_REUSEADDR, without which nobody can have a port of which a connection is in TIME_WAIT: a minute after its end
// (inet_csk_bind_conflict). Listeners have it too and may be bound to the port beside it. So may the reservations of others, from
// which the name keeps the port: that of an abstract unix socket (unix(7)). Like the port it belongs to the network namespace, and
// it ends with the process.
type reservation struct {
	fd, name int
	port     uint16
}

// reserve takes the first free port of n, counted from base.
func reserve(base uint16, n int) (*reservation, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	at := func(port uint16) unix.Sockaddr { return &unix.SockaddrInet6{Port: int(port)} }
	if err == nil {
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil { // a host without IPv6
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return nil, err
		}
		at = func(port uint16) unix.Sockaddr { return &unix.SockaddrInet4{Port: int(port)} }
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		for i := range n {
			port := base + uint16(i)
			var name int
			if name, err = claimName(port); err == nil {
				if err = unix.Bind(fd, at(port)); err == nil {
					return &reservation{fd, name, port}, nil
				}
				unix.Close(name)
			}
			if !errors.Is(err, unix.EADDRINUSE) {
				break
			}
		}
	}
	unix.Close(fd)
	return nil, err
}

// claimName takes the name of a port.
func claimName(port uint16) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@goverbs/rendezvous/%d", port)}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// listening is called before a listener is opened at the port.
func (*reservation) listening() error { return nil }

func (r *reservation) close() error { return errors.Join(unix.Close(r.fd), unix.Close(r.name)) }
