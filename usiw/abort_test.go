// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// hangs configures a NIC whose connections wait for a silent peer longer than any test runs.
var hangs = usiw.Config{CloseTimeout: time.Hour, PeerTimeout: time.Hour}

// wasReset requires that the peer's stream ended with a reset.
func (p *rawPeer) wasReset() {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(rawWait))
	_, err := io.Copy(io.Discard, p.conn)
	require.ErrorIs(p.t, err, syscall.ECONNRESET)
}

// TestAbort: a connection ends at once even if the peer does not react, and the peer receives a
// reset, whether or not data for it are pending.
func TestAbort(t *testing.T) {
	n := newRawNIC(t, hangs)
	for name, messages := range map[string]int{"Idle": 0, "Flooded": 64} {
		t.Run(name, func(t *testing.T) {
			e, p := n.as(t).passive(rawOpts{})
			posted := e.flood(e.large(1<<20), messages)
			within(t, rawWait, "Abort", func() { require.NoError(t, e.id.Abort()) })
			require.ErrorIs(t, e.id.Err(), verbs.ErrClosed)
			require.Equal(t, verbs.QPStateErr, e.qp.State())
			e.sendsDone(posted)
			p.wasReset()
			require.NoError(t, e.id.Abort())
			require.NoError(t, e.id.Close())
		})
	}
	require.NoError(t, (*cm.ID)(nil).Abort())
}

// TestAbortEndsClose: Abort also ends a pending Close, and one that follows a Disconnect.
func TestAbortEndsClose(t *testing.T) {
	n := newRawNIC(t, hangs)
	for name, disconnected := range map[string]bool{"Close": false, "Disconnect": true} {
		t.Run(name, func(t *testing.T) {
			e, p := n.as(t).passive(rawOpts{})
			if disconnected {
				require.NoError(t, e.id.Disconnect())
			}
			closed := make(chan error, 1)
			go func() { closed <- e.id.Close() }()
			p.eof() // the orderly shutdown has begun, and the peer does not answer it
			select {
			case err := <-closed:
				t.Fatal("Close did not wait for the peer", err)
			case <-time.After(10 * time.Millisecond):
			}
			within(t, rawWait, "Abort", func() { require.NoError(t, e.id.Abort()) })
			require.NoError(t, <-closed)
		})
	}
}

// TestCloseContext: Close waits for a silent peer until the context is done, and returns at once if
// the peer has closed.
func TestCloseContext(t *testing.T) {
	n := newRawNIC(t, hangs)
	e, p := n.passive(rawOpts{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- e.id.CloseContext(ctx) }()
	p.eof() // the orderly shutdown has begun: a context that is done earlier resets the connection
	select {
	case err := <-closed:
		t.Fatal("CloseContext did not wait for the peer", err)
	default:
	}
	cancel()
	err := result(t, "CloseContext", closed)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "Close")
	require.NoError(t, e.id.Close(), "it is closed")

	e, p = n.passive(rawOpts{})
	p.close()
	require.NoError(t, e.id.CloseContext(soon(t)))

	e, p = n.passive(rawOpts{})
	within(t, rawWait, "CloseContext", func() { require.ErrorIs(t, e.id.CloseContext(ctx), context.Canceled) })
	p.wasReset()
	require.NoError(t, (*cm.ID)(nil).CloseContext(ctx))
}

// TestAbortConnect: a pending Connect returns ErrClosed.
func TestAbortConnect(t *testing.T) {
	n := newRawNIC(t, hangs)
	ln := rawListen(t)
	e := n.end(verbs.QPCap{})
	id, err := cm.Resolve(soon(t), ln.Addr().String(), n.config())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- id.Connect(context.Background(), e.qp, cm.ConnParam{}) }()
	p := rawAccept(t, ln)
	p.frame()
	require.NoError(t, id.Abort())
	require.ErrorIs(t, result(t, "Connect", done), verbs.ErrClosed)
}
