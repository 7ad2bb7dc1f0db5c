// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of the test's own, in which Do runs code and nsenter(1) runs
// programs. It implements usiw.Network.
type Namespace struct {
	net.Dialer
	Path string // of the file that represents it
	fd   int
}

// NewNamespace creates an empty network namespace. It exists until its descriptor is closed.
func NewNamespace(t *testing.T) *Namespace {
	// Package net checks for IPv6 on first use and caches the answer. That must happen out here:
	// the namespace has no ::1.
	ln, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	n := &Namespace{}
	made := make(chan error)
	go func() {
		// The thread must not be reused; never unlocked, it exits with the goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC,
				0)
		}
		made <- err
	}()
	err = <-made
	if errors.Is(err, unix.EPERM) {
		Lacks(t, "a network namespace needs root")
	}
	require.NoError(t, err)
	n.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd)
	t.Cleanup(func() { unix.Close(n.fd) })
	return n
}

// Do runs f on a thread in the namespace.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// IP runs the ip command of iproute2 in the namespace.
func (n *Namespace) IP(t *testing.T, args ...string) {
	require.NoError(t, n.Do(func() error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s (Debian package iproute2)", args, err, out)
		}
		return nil
	}))
}

// DialContext implements usiw.Network.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() (err error) {
		conn, err = n.Dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen implements usiw.Network.
func (n *Namespace) Listen(ctx context.Context, network, address string) (ln net.Listener, err error) {
	err = n.Do(func() (err error) {
		ln, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return ln, err
}
