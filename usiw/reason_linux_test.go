// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestTerminateBeforeReset: the peer sends a Terminate and resets the connection, as Linux siw does
// if it leaves messages unread. A request finds the connection reset before the Terminate is read;
// the Terminate is still reported as the reason.
func TestTerminateBeforeReset(t *testing.T) {
	a, b := twoSides(t, Config{})
	a.conn.rx.mu.Lock() // keeps others from reading
	last := termination{fault: faultLocal}
	fpdu := last.appendFPDU(nil, b.conn.crc)
	n, err := b.conn.s.write([][]byte{fpdu})
	require.NoError(t, err)
	require.Len(t, fpdu, n)
	require.NoError(t, b.reset())
	require.Eventually(t, func() bool {
		info, ok := a.conn.s.(*tcpStream).info()
		return ok && info.State == tcpClose
	}, patience, time.Millisecond)
	a.post(verbs.WRSend, 0, b)
	a.conn.rx.mu.Unlock()
	select {
	case <-a.id.Done():
	case <-time.After(patience):
		require.FailNow(t, "the connection has not ended")
	}
	var reason *verbs.TerminateError
	require.ErrorAs(t, a.id.Err(), &reason)
	require.True(t, reason.Remote)
}
