// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
)

// TestSilentSource: a listener keeps a limited number of silent streams from one address. When more
// arrive it closes the oldest, so that the address can always connect. Other addresses and loopback
// addresses are not affected.
func TestSilentSource(t *testing.T) {
	const most = 3
	ns := rdmatest.NewNamespace(t)
	ns.IP(t, "link", "set", "lo", "up")
	ns.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	ns.IP(t, "addr", "add", "10.97.0.1/24", "dev", "v0")
	ns.IP(t, "addr", "add", "10.97.0.2/24", "dev", "v0")
	ns.IP(t, "link", "set", "v1", "up")
	ns.IP(t, "link", "set", "v0", "up")
	n := newRawNIC(t, usiw.Config{Network: ns, MaxSilent: most, SetupTimeout: time.Minute})
	ln, err := cm.Listen(soon(t), "0.0.0.0:7306", n.config())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })

	dial := func(from string) *rawPeer {
		ns.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		nc, err := ns.DialContext(soon(t), "tcp4", from+":7306")
		require.NoError(t, err)
		p := &rawPeer{t: t, conn: nc.(*net.TCPConn)}
		t.Cleanup(p.close)
		return p
	}
	closed := func(p *rawPeer, within time.Duration) bool {
		_ = p.conn.SetReadDeadline(time.Now().Add(within))
		_, err := p.conn.Read(make([]byte, 1))
		return err == io.EOF
	}
	speaks := func(p *rawPeer) {
		t.Helper()
		p.sendFrame(rawRequest())
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.Reject(nil))
	}
	var silent, local []*rawPeer
	for range most {
		silent = append(silent, dial("10.97.0.1"))
		local = append(local, dial("127.0.0.1"), dial("127.0.0.1"))
	}
	other := dial("10.97.0.2")
	speaks(dial("10.97.0.1"))
	// The first ones are closed soon after later ones arrive.
	for _, p := range silent[:most-1] {
		require.Eventually(t, func() bool {
			dial("10.97.0.1")
			return closed(p, 50*time.Millisecond)
		}, rawWait, time.Millisecond)
	}
	speaks(dial("10.97.0.1"))
	for _, p := range append(local, other) {
		require.False(t, closed(p, time.Millisecond))
		speaks(p)
	}
}
