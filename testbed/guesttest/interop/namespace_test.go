// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace creates sockets in another network namespace of this host (usiw.Network). A socket
// belongs to the namespace in which it is created, wherever it is used, so only its creation needs
// a thread in the namespace.
type namespace struct {
	home, there int // file descriptors of the process's own namespace and of the other
}

// newNamespace opens a namespace that was named with ip(8).
func newNamespace(name string) (*namespace, error) {
	home, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	there, err := unix.Open(filepath.Join("/run/netns", name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(home))
	}
	return &namespace{home, there}, nil
}

func (n *namespace) Close() error { return errors.Join(unix.Close(n.home), unix.Close(n.there)) }

// visit runs f in a thread that is in the namespace.
func (n *namespace) visit(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(n.there, unix.CLONE_NEWNET); err != nil {
			done <- err
			return // the thread exits with the goroutine because it is locked
		}
		err := f()
		if back := unix.Setns(n.home, unix.CLONE_NEWNET); back != nil {
			done <- errors.Join(err, back)
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// DialContext implements usiw.Network. The address must be numerical, so that dialling starts no
// other goroutine.
func (n *namespace) DialContext(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.visit(func() (err error) {
		d := net.Dialer{KeepAlive: -1}
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen implements usiw.Network.
func (n *namespace) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.visit(func() (err error) {
		lc := net.ListenConfig{KeepAlive: -1}
		l, err = lc.Listen(ctx, network, address)
		return err
	})
	return l, err
}
