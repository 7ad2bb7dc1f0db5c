// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"errors"

	"golang.org/x/sys/unix"
)

// reservation keeps a TCP port for this process, so that nobody else listens there before the device does. It is a socket that is
// bound to every address and does not listen.
//
// It binds without SO_REUSEADDR, which fails if anybody else has the port, and gets SO_REUSEADDR then. From then on sockets with
// SO_REUSEADDR, which those of listeners are, may be bound to the port beside it (inet_csk_bind_conflict), and reservations of others
// may not.
type reservation struct {
	fd   int
	port uint16
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
	for i := range n {
		port := base + uint16(i)
		if err = unix.Bind(fd, at(port)); err == nil {
			if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
				return &reservation{fd, port}, nil
			}
			break
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	unix.Close(fd)
	return nil, err
}

// listening is called before a listener is opened at the port.
func (*reservation) listening() error { return nil }

func (r *reservation) close() error { return unix.Close(r.fd) }
