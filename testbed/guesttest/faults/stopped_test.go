// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/verbs"
)

// TestOneHostStopped: the peer's process is stopped, so it answers nothing. Abort and CloseContext
// do not wait for it: on rxe0, Close would wait 3 s for the answer to a DREQ. When the peer
// resumes, it has lost only these connections.
func TestOneHostStopped(t *testing.T) {
	each(t, "siw0", []string{"usiw", "siw0", "rxe0"}, func(t *testing.T, s *site) {
		p := start(t, roleServe, s.name, s.listen)
		address := p.line()
		conns := make([]*load.Conn, 3)
		for i := range conns {
			conns[i] = s.dial(t, address)
			require.NoError(t, conns[i].EachStep())
			_, err := conns[i].QP.PostRecv([]verbs.RecvWR{{ID: 7}})
			require.NoError(t, err)
		}
		by := s.dial(t, address)
		p.stop()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		ends := func(name string, c *load.Conn, end func() error) {
			t.Helper()
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- end() }()
			err := closes(t, ended, name)
			t.Logf("%s: %v after %v", name, err, time.Since(began).Round(time.Millisecond))
			// on iWARP the stream may have ended already
			if name == "CloseContext" && (s.name == "rxe0" || err != nil) {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			require.ErrorIs(t, c.ID.Err(), verbs.ErrClosed)
			var wcs [1]verbs.WC
			n, err := c.CQ.Poll(wcs[:])
			require.NoError(t, err)
			require.Equal(t, 1, n, "the receive has been flushed")
			require.ErrorIs(t, wcs[0].Err(), verbs.WCWRFlushErr)
			require.NoError(t, c.ID.Close(), "again")
		}
		ends("Abort", conns[0], conns[0].ID.Abort)
		ends("CloseContext", conns[1], func() error { return conns[1].ID.CloseContext(gone) })
		ends("Close, then Abort", conns[2], func() error {
			closed := make(chan error, 1)
			go func() { closed <- conns[2].ID.Close() }()
			<-conns[2].ID.Done()
			if err := conns[2].ID.Abort(); err != nil {
				return err
			}
			return <-closed
		})
		p.goOn()
		require.NoError(t, by.EachStep(), "another connection")
		s.works(t, address)
		for _, c := range append(conns, by) {
			require.NoError(t, c.Close())
		}
		p.leave()
	})
}

// stop stops the peer and returns once it does nothing.
func (p *peer) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(p.t, func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(status), "State:\tT")
	}, soon, time.Millisecond)
}

// goOn resumes a stopped peer.
func (p *peer) goOn() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
