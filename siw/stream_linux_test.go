// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNextWaitWritable: a wait ends when the next one has begun already. It leaves that one's deadline alone.
func TestNextWaitWritable(t *testing.T) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer ln.Close()
	nc, err := net.Dial("tcp4", ln.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	st, err := newStream(nc, time.Hour)
	require.NoError(t, err)
	s := st.(*tcpStream)
	require.NoError(t, s.waitWritable(func() bool {
		return s.setWriteDeadline(time.Now().Add(10 * time.Millisecond)) // as the next wait does at its begin
	}))
	next := make(chan error, 1)
	go func() { next <- s.raw.Write(func(uintptr) bool { return false }) }()
	select {
	case err := <-next:
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	case <-time.After(patience):
		require.Fail(t, "the next wait has no deadline")
	}
}
