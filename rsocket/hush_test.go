// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// hushed connects a raw peer, which sends nothing, to a listener on siw0.
func hushed(t *testing.T) (*raw, *Conn) {
	t.Helper()
	rdmatest.KernelDevice(t, "siw0")
	dev, err := verbs.DeviceByName("siw0")
	require.NoError(t, err)
	lc := ListenConfig{Config: Config{Device: dev}}
	ln, err := lc.Listen(soon(t), "tcp", "10.77.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	ep, err := cm.Dial(soon(t), ln.Addr().String(), cm.Config{Device: dev}, rawConfig(correct))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ep.Close() })
	c, err := ln.AcceptConn()
	require.NoError(t, err)
	d, err := parseConnData(ep.PrivateData())
	require.NoError(t, err)
	return &raw{t, ep, d}, c
}

// TestKernelSilentPeer: two sides that wait for each other do not do so forever. A passive siw can
// miss a message, so this side may believe that the peer has sent nothing.
func TestKernelSilentPeer(t *testing.T) {
	_, c := hushed(t)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(hushTime/4)))
	_, err := c.Write([]byte{1})
	var timeout net.Error
	require.ErrorAs(t, err, &timeout, "it waits")
	require.True(t, timeout.Timeout())
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(30*time.Second)))
	_, err = c.Write([]byte{1})
	require.NoError(t, err, "but not for ever")
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	<-c.ended
}

// TestKernelSpokenTo: the wait ends once the peer has sent something.
func TestKernelSpokenTo(t *testing.T) {
	r, c := hushed(t)
	r.tell(newMessage(opData, 1))
	_, err := io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(hushTime/4)))
	_, err = c.Write([]byte{1})
	require.NoError(t, err)
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	<-c.ended
}

// TestKernelClosedHushed: closing a connection on which nothing was sent ends the wait too.
func TestKernelClosedHushed(t *testing.T) {
	for _, linger := range []int{0, -1} {
		_, c := hushed(t)
		require.NoError(t, c.SetLinger(linger))
		require.NoError(t, c.Close())
		<-c.ended
		c.speak() // a late timer
	}
}
