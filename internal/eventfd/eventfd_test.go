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

func newFile(t *testing.T) (int, *File) {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	f, err := New(fd, "test")
	require.NoError(t, err)
	return fd, f
}

// taker returns a function for Wait that reads the events of fd.
func taker(fd int) func() bool {
	return func() bool {
		var b [8]byte
		n, err := unix.Read(fd, b[:])
		return n == 8 && err == nil
	}
}

func TestWaitTakesAnEvent(t *testing.T) {
	fd, f := newFile(t)
	ended := make(chan error)
	go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
	asleep.Until(t, 1, "eventfd.(*File).Wait", "eventfd.TestWaitTakesAnEvent")
	unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, <-ended)
	require.NoError(t, f.Close())
}

func TestWaitEndsWithItsContext(t *testing.T) {
	fd, f := newFile(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, f.Wait(ctx, taker(fd)))
	require.Equal(t, context.DeadlineExceeded, f.Wait(ctx, taker(fd)), "and at once")
	unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, f.Wait(context.Background(), taker(fd)), "others can wait on")
	require.NoError(t, f.Close())
}

// The goroutine that sleeps in the poller, those waiting for their turn, and any later one.
func TestCloseEndsEveryWait(t *testing.T) {
	fd, f := newFile(t)
	ended := make(chan error)
	for range 3 {
		go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
	}
	asleep.Until(t, 3, "eventfd.(*File).Wait", "eventfd.TestCloseEndsEveryWait")
	require.NoError(t, f.Close())
	for range 3 {
		require.Equal(t, lifetime.ErrClosed, <-ended)
	}
	require.Equal(t, lifetime.ErrClosed, f.Wait(context.Background(), taker(fd)))
}

// TestTakenWhileClosed checks that an event that was read is not lost to a concurrent Close.
func TestTakenWhileClosed(t *testing.T) {
	_, f := newFile(t)
	closed := make(chan error, 1)
	require.NoError(t, f.Wait(context.Background(), func() bool {
		go func() { closed <- f.Close() }()
		<-f.closed
		return true
	}))
	require.NoError(t, <-closed)
}

func TestWakeTriesAgain(t *testing.T) {
	_, f := newFile(t)
	tries := 0
	ended := make(chan error)
	go func() { ended <- f.Wait(context.Background(), func() bool { tries++; return tries == 2 }) }()
	asleep.Until(t, 1, "eventfd.(*File).Wait", "eventfd.TestWakeTriesAgain")
	f.Wake()
	require.NoError(t, <-ended)
	require.NoError(t, f.Close())
}

func TestNewRefuses(t *testing.T) {
	_, err := New(-1, "nothing")
	require.ErrorIs(t, err, unix.EBADF)
	require.ErrorContains(t, err, "nothing: O_NONBLOCK")
	few, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(few)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}))
	_, err = New(few, "one too many")
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorContains(t, err, "one too many: F_DUPFD_CLOEXEC")
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	_, err = New(fd, "a file")
	require.ErrorContains(t, err, "cannot be waited for")
}
