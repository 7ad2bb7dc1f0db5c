// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReserve: a port is one reservation's, beside which this process listens, and nobody's who finds a listener there. When it is over,
// the next one has the port at once, although a connection is in TIME_WAIT.
func TestReserve(t *testing.T) {
	r, err := reserve(29000, 1000)
	require.NoError(t, err)
	taken := func() {
		t.Helper()
		_, err := reserve(r.port, 1)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
	taken()
	ln, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(int(r.port)))
	require.NoError(t, err)
	taken()
	c, err := net.Dial("tcp4", ln.Addr().String())
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, accepted.Close()) // the first end, which waits
	_, err = c.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	require.NoError(t, c.Close())
	require.NoError(t, r.close())
	taken() // by the listener
	require.NoError(t, ln.Close())

	again, err := reserve(r.port, 1)
	require.NoError(t, err)
	taken()
	require.NoError(t, again.close())
}
