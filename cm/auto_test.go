// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// oneRequest is one listener of a multiListener, with a single request.
type oneRequest struct {
	ProviderListener
	requests chan ProviderRequest
	closed   chan struct{}
	err      error // of Close
}

func (l *oneRequest) Accept(context.Context) (ProviderRequest, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, verbs.ErrClosed
	}
}

func (l *oneRequest) Close() error {
	close(l.closed)
	return l.err
}

// counted counts its rejections.
type counted struct {
	ProviderRequest
	rejected int
}

func (r *counted) Reject([]byte) error {
	r.rejected++
	return nil
}

// TestRequestInHand: Close refuses a request that a listener of several devices holds and that
// Accept has not returned.
func TestRequestInHand(t *testing.T) {
	part := &oneRequest{requests: make(chan ProviderRequest), closed: make(chan struct{})}
	m := &multiListener{requests: make(chan ProviderRequest), failures: make(chan error), closed: make(chan struct{})}
	m.add(part, nil)
	m.start()
	r := new(counted)
	part.requests <- r // the listener holds it from here on
	require.NoError(t, m.Close())
	require.Equal(t, 1, r.rejected)
	require.NoError(t, m.Close())
	require.Equal(t, 1, r.rejected)
	_, err := m.Accept(t.Context())
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestPartFails: an error from closing one part of a listener is the listener's error.
func TestPartFails(t *testing.T) {
	part := &oneRequest{closed: make(chan struct{}), err: verbs.ErrState}
	m := &multiListener{requests: make(chan ProviderRequest), failures: make(chan error), closed: make(chan struct{})}
	m.add(&oneRequest{closed: make(chan struct{})}, nil)
	m.add(part, nil)
	m.start()
	require.ErrorIs(t, m.Close(), verbs.ErrState)
	require.ErrorIs(t, m.Close(), verbs.ErrState, "again")
}

// TestOneAttempt: an attempt is refused if the ID has already connected, or is closed.
func TestOneAttempt(t *testing.T) {
	never := func(context.Context) (ProviderConn, error) {
		t.Error("the attempt is made")
		return nil, verbs.ErrClosed
	}
	for _, c := range []struct {
		id *ID
		is error
	}{{&ID{used: true}, verbs.ErrInvalid}, {&ID{closing: true}, verbs.ErrClosed}} {
		require.ErrorIs(t, c.id.establish(t.Context(), "Connect", nil, never), c.is)
		require.ErrorIs(t, c.id.fresh(), c.is, "and its lock is free")
	}
}
