// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package eventfd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/lifetime"
)

const limit = 30 * time.Second

// within returns what arrives in time.
func within(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(limit):
		require.FailNow(t, "nothing has come")
		return nil
	}
}

// reading returns a File on which a goroutine waits without finding anything, and the result of its
// Wait.
func reading(t *testing.T) (*File, <-chan error) {
	t.Helper()
	_, f := newFile(t)
	began, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- f.Wait(context.Background(), func() bool {
			select {
			case began <- nil:
			default:
			}
			return false
		})
	}()
	require.NoError(t, within(t, began))
	return f, ended
}

// TestContextEndsItsOwnWait checks that a goroutine waiting for its turn behind a reading goroutine
// returns when its own context is done, and that the reader stays.
func TestContextEndsItsOwnWait(t *testing.T) {
	f, first := reading(t)
	for _, left := range []time.Duration{0, time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		second := make(chan error, 1)
		go func() { second <- f.Wait(ctx, func() bool { panic("it is not its turn") }) }()
		require.Equal(t, context.DeadlineExceeded, within(t, second))
	}
	require.Empty(t, first)
	require.NoError(t, f.Close())
	require.Equal(t, lifetime.ErrClosed, within(t, first))
}

// TestCloseEndsTheLine checks that Close releases the Waits in line even while the reading
// goroutine is busy with an event.
func TestCloseEndsTheLine(t *testing.T) {
	_, f := newFile(t)
	busy, ended := make(chan error, 1), make(chan error, 3)
	release := make(chan struct{})
	go func() {
		ended <- f.Wait(t.Context(), func() bool { busy <- nil; <-release; return true })
	}()
	require.NoError(t, within(t, busy))
	second := make(chan error, 1)
	go func() { second <- f.Wait(t.Context(), func() bool { panic("it is not its turn") }) }()
	asleep.Until(t, 2, "eventfd.(*File).Wait", "eventfd.TestCloseEndsTheLine")
	go func() { ended <- f.Close() }()
	defer close(release)
	require.Equal(t, lifetime.ErrClosed, within(t, second))
	release <- struct{}{}
	for range 2 {
		require.NoError(t, within(t, ended))
	}
}

// TestNotInherited checks that a program started while a descriptor is waited for does not inherit
// it.
func TestNotInherited(t *testing.T) {
	_, f := newFile(t)
	require.NoError(t, f.rc.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC)
	}))
	require.NoError(t, f.Close())
}

// TestEndedContextTakesNothing checks that a Wait whose context is done leaves a pending event to
// others.
func TestEndedContextTakesNothing(t *testing.T) {
	fd, f := newFile(t)
	_, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, f.Wait(ctx, taker(fd)))
	require.NoError(t, f.Wait(t.Context(), taker(fd)))
	require.NoError(t, f.Close())
}

// TestWakeEndsNothing checks that a Wait continues after a spurious Wake.
func TestWakeEndsNothing(t *testing.T) {
	_, f := newFile(t)
	tries := 0
	require.NoError(t, f.Wait(t.Context(), func() bool {
		tries++
		f.Wake()
		return tries == 5
	}))
	require.Equal(t, 5, tries)
	require.NoError(t, f.Close())
}
