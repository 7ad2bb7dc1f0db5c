// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
)

// TestSilentSource: a listener keeps a limited number of silent streams from one address and closes further ones. Another address
// and loopback addresses are not affected. A stream that has sent its Request, or has ended, does not count any more.
func TestSilentSource(t *testing.T) {
	const most = 3
	ns := newNamespace(t)
	ns.ip(t, "link", "set", "lo", "up")
	ns.ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	ns.ip(t, "addr", "add", "10.97.0.1/24", "dev", "v0")
	ns.ip(t, "addr", "add", "10.97.0.2/24", "dev", "v0")
	ns.ip(t, "link", "set", "v1", "up")
	ns.ip(t, "link", "set", "v0", "up")
	n := newRawNIC(t, siw.Config{Network: ns, MaxSilent: most, SetupTimeout: time.Minute})
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
	refused := func(p *rawPeer) {
		t.Helper()
		require.NoError(t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
		_, err := p.conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	speaks := func(p *rawPeer) {
		t.Helper()
		p.sendFrame(rawRequest())
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.Reject(nil))
	}
	var silent []*rawPeer
	for range most {
		silent = append(silent, dial("10.97.0.1"))
	}
	refused(dial("10.97.0.1"))
	speaks(dial("10.97.0.2"))
	for range 2 * most {
		dial("127.0.0.1")
	}
	speaks(dial("127.0.0.1"))

	for i, leave := range []func(p *rawPeer){speaks, func(p *rawPeer) { p.close() }} {
		leave(silent[i])
		// The place is free a moment later.
		ctx, cancel := context.WithTimeout(t.Context(), rawWait)
		for free := false; !free; {
			require.NoError(t, ctx.Err(), "the place is not given back")
			p := dial("10.97.0.1")
			speaks(dial("127.0.0.1")) // came later: what the listener does with p is done
			_ = p.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := p.conn.Read(make([]byte, 1))
			free = err != io.EOF
		}
		cancel()
		refused(dial("10.97.0.1"))
	}
}
