// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNextWaitWritable: a wait that returns after the next one has begun leaves the next one's
// descriptor and deadline unchanged.
func TestNextWaitWritable(t *testing.T) {
	for name, open := range map[string]bool{"alone": true, "in a set": false} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			require.NoError(t, err)
			defer ln.Close()
			nc, err := net.Dial("tcp4", ln.Addr().String())
			require.NoError(t, err)
			defer nc.Close()
			st, err := newStream(nc, time.Hour)
			require.NoError(t, err)
			s := st.(*tcpStream)
			defer s.drainAndClose(context.Background(), nil, time.Now())
			if open {
				require.NoError(t, s.open())
				defer s.shut()
			}
			var p *polled
			require.NoError(t, s.waitWritable(func() bool {
				s.patience = 10 * time.Millisecond
				p, err = s.enterRoom() // as the next wait does when it begins
				return true
			}))
			require.NoError(t, err)
			defer s.leaveRoom(p)
			next := make(chan error, 1)
			go func() { next <- p.raw.Write(func(uintptr) bool { return false }) }()
			select {
			case err := <-next:
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			case <-time.After(patience):
				require.Fail(t, "the next wait has no deadline")
			}
		})
	}
}
