// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestOptions: which options the device supports.
func TestOptions(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, cfg := range []cm.Config{{AckTimeout: 14}, {TOS: 1}} {
		cfg.Context = n.ctx
		_, err := cm.Resolve(soon(t), "127.0.0.1:1", cfg)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		_, err = cm.Listen(soon(t), "127.0.0.1:0", cfg)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
	}
	_, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: n.ctx, AckTimeout: 32})
	require.ErrorIs(t, err, verbs.ErrLimit)
	_, err = cm.Listen(soon(t), ":0", cm.Config{Context: n.ctx, AFOnly: true})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "AFOnly")
}

// TestReuseAddr: a local port can be used again while its last connection is closing only if the
// option is set.
func TestReuseAddr(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	// A random address, because the system may give the port to another program on 127.0.0.1 in the
	// meantime.
	port, err := net.Listen("tcp4", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(250), 1+rand.N(250), 1+rand.N(250)))
	require.NoError(t, err)
	source := port.Addr().(*net.TCPAddr).AddrPort()
	require.NoError(t, port.Close())
	connect := func(reuse bool) error {
		ln := rawListen(t)
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: n.ctx, Source: source, ReuseAddr: reuse})
		require.NoError(t, err)
		defer func() { require.NoError(t, id.Close()) }()
		failed := make(chan error, 1)
		go func() { failed <- id.Connect(soon(t), n.end(verbs.QPCap{}).qp, cm.ConnParam{}) }()
		accepted := make(chan net.Conn, 1)
		go func() {
			if c, err := ln.Accept(); err == nil {
				accepted <- c
			}
		}()
		select {
		case err := <-failed:
			return err
		case c := <-accepted:
			require.Equal(t, source.String(), c.RemoteAddr().String())
			require.NoError(t, id.Abort()) // the NIC closes first, and its side of the stream remains for a while
			require.ErrorIs(t, <-failed, verbs.ErrClosed)
			_, err := io.Copy(io.Discard, c)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			return nil
		}
	}
	require.NoError(t, connect(true))
	require.NoError(t, connect(true))
	require.ErrorIs(t, connect(false), syscall.EADDRINUSE)
}

// TestAFOnlyListener: a listener on "::" accepts both families unless AFOnly is set.
func TestAFOnlyListener(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, only := range []bool{false, true} {
		ln, err := cm.Listen(soon(t), "[::]:0", cm.Config{Context: n.ctx, AFOnly: only})
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		c, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", port))
		if only {
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		} else {
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		require.NoError(t, ln.Close())
	}
}

// TestFamilies: a listener on 0.0.0.0 is IPv4 only, as in the kernel, so that another one can use
// the same port on [::].
func TestFamilies(t *testing.T) {
	for _, any4 := range []string{"0.0.0.0", "::ffff:0.0.0.0"} {
		t.Run(any4, func(t *testing.T) { families(t, any4) })
	}
}

func families(t *testing.T, any4 string) {
	n := newRawNIC(t, usiw.Config{})
	four, err := cm.Listen(soon(t), net.JoinHostPort(any4, "0"), cm.Config{Context: n.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, four.Close()) }()
	_, port, err := net.SplitHostPort(four.Addr().String())
	require.NoError(t, err)
	_, err = net.Dial("tcp6", net.JoinHostPort("::1", port))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	six, err := cm.Listen(soon(t), net.JoinHostPort("::", port), cm.Config{Context: n.ctx, AFOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, six.Close()) }()
	for network, host := range map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"} {
		c, err := net.Dial(network, net.JoinHostPort(host, port))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}
