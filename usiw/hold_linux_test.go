// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestHoldLostReply drops the Reply in the network for longer than HoldTimeout. HoldTimeout starts
// only when TCP has delivered the Reply, so no message arrives together with it.
func TestHoldLostReply(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	a, b := twoHosts(t)

	n := newRawNIC(t, usiw.Config{Network: b, HoldTimeout: limit, CloseTimeout: time.Second})
	ln, err := cm.Listen(soon(t), "10.99.0.2:7306", n.config())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	conn, err := a.DialContext(soon(t), "tcp", "10.99.0.2:7306")
	require.NoError(t, err)
	p := &rawPeer{t: t, conn: conn.(*net.TCPConn)}
	t.Cleanup(p.close)
	p.sendFrame(mpa.Frame{Rev: mpa.Rev1, CRC: true})
	req := n.request(ln)
	b.IP(t, "link", "set", "v1", "down")
	e := n.end(verbs.QPCap{})
	r := result(t, "Accept", e.goAccept(soon(t), req, fours))
	require.NoError(t, r.err)
	e.id = r.id
	e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
	time.Sleep(2 * limit)
	e.idle(e.scq)
	b.IP(t, "link", "set", "v1", "up")
	require.True(t, p.frame().Reply)
	p.crc = true
	p.none(limit / 4)
	require.Equal(t, rawSend(1, nil), p.read())
	require.Equal(t, verbs.WCSuccess, e.sent().Status)
}
