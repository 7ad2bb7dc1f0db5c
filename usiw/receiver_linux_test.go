// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// endlessStream delivers the same FPDU over and over, as often as there is room for it.
type endlessStream struct {
	stream
	fpdu  []byte
	at    int
	reads int
}

func (s *endlessStream) read(bufs [][]byte) (n int, err error) {
	s.reads++
	for _, b := range bufs {
		for i := range b {
			b[i] = s.fpdu[s.at]
			s.at = (s.at + 1) % len(s.fpdu)
		}
		n += len(b)
	}
	return n, nil
}

// readersRest waits until the reader of every connection is waiting for its socket, after its first
// read under rx.mu. Bytes that are read later without a message from the peer are read by the test.
func readersRest(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		readers, resting := 0, 0
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "usiw.(*watch).read(") {
				readers++
				if strings.Contains(g, " [IO wait") {
					resting++
				}
			}
		}
		if readers == 2 && resting == 2 {
			return
		}
		require.True(t, time.Now().Before(limit), "%d of %d readers are at rest", resting, readers)
	}
}

// TestPollReturns: a poll returns even if a peer sends RDMA Writes without pause.
func TestPollReturns(t *testing.T) {
	_, b := twoSides(t, Config{})
	c := b.conn
	readersRest(t)
	endless := &endlessStream{stream: c.s, fpdu: b.writeFPDU(1000)}
	c.rx.mu.Lock()
	was := c.s
	c.s = endless
	c.rx.mu.Unlock()
	for i := range 3 {
		var wcs [1]verbs.WC
		n, err := b.rcq.Poll(wcs[:])
		require.NoError(t, err)
		require.Zero(t, n)
		// A partial FPDU left in the buffer makes the next read smaller, so a turn may need one
		// more read.
		require.GreaterOrEqual(t, endless.reads, (i+1)*turnBytes/readBytes)
		require.LessOrEqual(t, endless.reads, (i+1)*(turnBytes/readBytes+1))
	}
	c.rx.mu.Lock()
	c.s = was
	c.rx.mu.Unlock()
	require.NoError(t, b.id.Close()) // in the middle of an FPDU
}
