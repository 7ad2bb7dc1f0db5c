// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/verbs"
)

// victim is a connection that a test will disturb: goroutines wait for everything that can be
// waited for, and receives are outstanding.
type victim struct {
	t *testing.T
	*load.Conn
	completed chan completion
	events    chan error
}

type completion struct {
	wc  verbs.WC
	err error
}

const outstanding = 4

func newVictim(t *testing.T, c *load.Conn) *victim {
	t.Helper()
	require.NoError(t, c.EachStep(), "before anything has happened")
	v := &victim{t: t, Conn: c, completed: make(chan completion, 64), events: make(chan error, 1)}
	for i := range outstanding {
		_, err := c.QP.PostRecv([]verbs.RecvWR{{ID: uint64(100 + i)}})
		require.NoError(t, err)
	}
	go func() {
		for {
			var wcs [1]verbs.WC
			_, err := c.CQ.Wait(context.Background(), wcs[:])
			v.completed <- completion{wcs[0], err}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for {
			if _, err := c.Context().WaitEvent(context.Background()); err != nil {
				v.events <- err
				return
			}
		}
	}()
	return v
}

// ends requires that the connection has ended, that all waiting calls have returned, and that it
// can be closed. It returns why the connection ended.
func (v *victim) ends() error {
	t := v.t
	t.Helper()
	closes(t, v.ID.Done(), "the end of the connection")
	err := v.ID.Err()
	t.Logf("%s: the connection ended: %v (%T); QP: %v", v.Context().Device().Name(), err, err, v.QP.Err())
	require.Error(t, err)
	require.Error(t, v.QP.Err())
	require.Equal(t, verbs.QPStateErr.String(), v.QP.State().String())
	for i := range outstanding {
		v.flushed(uint64(100 + i))
	}
	// Requests that are posted later are flushed too.
	_, perr := v.QP.PostSend([]verbs.SendWR{{ID: 200, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
	require.NoError(t, perr)
	v.flushed(200)
	v.closeSoon()
	require.ErrorIs(t, closes(t, v.completed, "CQ.Wait").err, verbs.ErrClosed)
	require.ErrorIs(t, closes(t, v.events, "WaitEvent"), verbs.ErrClosed)
	return err
}

func (v *victim) flushed(id uint64) {
	v.t.Helper()
	c := closes(v.t, v.completed, "a completion")
	require.NoError(v.t, c.err)
	require.Equal(v.t, id, c.wc.ID)
	require.ErrorIs(v.t, c.wc.Err(), verbs.WCWRFlushErr)
}

// closeSoon closes everything in bounded time.
func (v *victim) closeSoon() {
	v.t.Helper()
	closed := make(chan error, 1)
	began := time.Now()
	go func() { closed <- v.Close() }()
	require.NoError(v.t, closes(v.t, closed, "Close"))
	v.t.Logf("closed in %v", time.Since(began).Round(time.Millisecond))
}
