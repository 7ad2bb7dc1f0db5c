// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// TestConnectClosed closes the NIC while a connection is being established: the connection's
// resources are released once, and Close returns.
func TestConnectClosed(t *testing.T) {
	n := newSides(t, Config{})
	s := n.side(nil, nil)
	require.NoError(t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPAttrState))
	q := s.qp.Provider().(*qp)
	d := q.dev
	nc, _ := talkers(t)
	q.mu.Lock() // keeps the connection from starting
	began := make(chan error, 1)
	go func() {
		_, err := newConn(q, nc, setup{})
		began <- err
	}()
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "usiw.(*qp).connect(")
	}, patience, time.Millisecond)
	require.True(t, d.guard.Shut())
	for _, c := range d.connections() { // what shutdown does if it acquires q.mu first
		c.failLocked(verbs.ErrClosed, nil)
	}
	q.mu.Unlock()
	d.shutdown()
	require.ErrorIs(t, <-began, verbs.ErrClosed)
	require.Empty(t, d.connections())
}

// goneFirst is a context that is already done, but whose Done method returns only once a connection
// is gone.
type goneFirst struct {
	context.Context
	c *conn
}

func (g goneFirst) Done() <-chan struct{} {
	<-g.c.gone
	return g.Context.Done()
}

// TestCloseContextDone: Close with a context that is already done returns its error, even if the
// connection ends at once. Close of a connection that is gone does not.
func TestCloseContextDone(t *testing.T) {
	n := newSides(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		a, b := n.join(n.side(nil, nil), n.side(nil, nil))
		require.ErrorIs(t, a.conn.CloseContext(goneFirst{ctx, a.conn}), context.Canceled)
		require.NoError(t, a.conn.CloseContext(ctx))
		<-b.id.Done()
	}
}

// descriptors lists the process's open descriptors.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	require.NoError(t, err)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	require.NoError(t, err)
	fds := make(map[int]bool)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		require.NoError(t, err)
		if fd != int(dir.Fd()) {
			fds[fd] = true
		}
	}
	return fds
}

// leave lets the process open no more than n further descriptors until the returned function is
// called.
func leave(t *testing.T, n int) (undo func()) {
	t.Helper()
	used := descriptors(t)
	limit := 0
	for ; n > 0 || used[limit]; limit++ {
		if !used[limit] {
			n--
		}
	}
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max}))
	return func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }
}

// TestConnectDescriptors makes connections that share a CQ while few descriptors are left. If there
// are too few for a connection, it fails, no descriptor leaks, and the other connections keep
// working.
func TestConnectDescriptors(t *testing.T) {
	n := newSides(t, Config{})
	cq := n.cq()
	a, b := n.join(n.side(nil, nil), n.side(cq, cq))
	b.conn.dev.yielder.yield()
	failed, ok := 0, 0
	for left := range 4 {
		s := n.side(cq, cq)
		require.NoError(t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPAttrState))
		nc, peer := talkers(t)
		before := descriptors(t)
		undo := leave(t, left)
		c, err := newConn(s.qp.Provider().(*qp), nc, setup{ord: 1, ird: 1, serve: 1})
		undo()
		if err != nil {
			failed++
			require.ErrorIs(t, err, unix.EMFILE)
			require.Len(t, descriptors(t), len(before)-1, "without that of the TCP connection, %d were left", left)
			require.False(t, b.gathers())
			require.Len(t, b.conn.dev.connections(), 2)
		} else {
			ok++
			require.True(t, b.gathers())
			require.NoError(t, peer.Close())
			require.NoError(t, c.CloseContext(context.Background()))
		}
		b.polledFlushed()
		exchange(t, a, b, polls)
		exchange(t, a, b, sleeps)
		a.answeredBy(b)
	}
	require.NotZero(t, failed)
	require.NotZero(t, ok)
}
