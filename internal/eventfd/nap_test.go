// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package eventfd

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/lifetime"
)

// longNaps makes naps longer than a test waits, so that the test fails if nothing wakes the
// goroutine.
func longNaps(t *testing.T, processors int) {
	t.Helper()
	was, before := napTime, runtime.GOMAXPROCS(processors)
	napTime = 2 * limit
	t.Cleanup(func() {
		napTime = was
		runtime.GOMAXPROCS(before)
	})
}

var anEvent = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// newBrief returns a File whose last event arrived immediately.
func newBrief(t *testing.T) (int, *File) {
	t.Helper()
	fd, f := newFile(t)
	f.naps = true
	_, err := unix.Write(fd, anEvent)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background(), taker(fd)))
	return fd, f
}

// napping waits until a goroutine naps.
func napping(t *testing.T, f *File) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.bell != noBell
	}, limit, time.Millisecond)
}

func TestNapEndsWithAnEvent(t *testing.T) {
	longNaps(t, 2)
	fd, f := newBrief(t)
	ended := make(chan error, 1)
	for range 3 {
		go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
		napping(t, f)
		_, err := unix.Write(fd, anEvent)
		require.NoError(t, err)
		require.NoError(t, within(t, ended))
	}
	require.NoError(t, f.Close())
}

func TestNapEndsWithWake(t *testing.T) {
	longNaps(t, 2)
	fd, f := newBrief(t)
	ended := make(chan error, 1)
	tries := 0
	go func() { ended <- f.Wait(context.Background(), func() bool { tries++; return tries == 1 }) }()
	napping(t, f)
	f.Wake()
	require.NoError(t, within(t, ended))

	// The next Wait looks immediately because of that Wake, and the one after it naps until there
	// is an event.
	put := func() {
		_, err := unix.Write(fd, anEvent)
		require.NoError(t, err)
	}
	put()
	require.NoError(t, f.Wait(context.Background(), taker(fd)))
	tries = 0
	go func() { ended <- f.Wait(context.Background(), func() bool { tries++; return taker(fd)() }) }()
	napping(t, f)
	put()
	require.NoError(t, within(t, ended))
	require.Equal(t, 1, tries)
	require.NoError(t, f.Close())
}

// TestNoNapAfterWake checks that the next Wait looks first, and that a Wake right before a nap ends
// it.
func TestNoNapAfterWake(t *testing.T) {
	longNaps(t, 2)
	fd, f := newBrief(t)
	ended := make(chan error, 1)
	f.Wake()
	go func() { ended <- f.Wait(context.Background(), func() bool { return true }) }()
	require.NoError(t, within(t, ended))
	f.Wake()
	go func() {
		f.nap(uintptr(fd), time.Now())
		ended <- nil
	}()
	require.NoError(t, within(t, ended))
	require.NoError(t, f.Close())
}

func TestNapEndsWithItsContext(t *testing.T) {
	longNaps(t, 2)
	fd, f := newBrief(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Wait(ctx, taker(fd)) }()
	napping(t, f)
	cancel()
	require.Equal(t, context.Canceled, within(t, ended))
	require.NoError(t, f.Close())
}

func TestNapEndsWithClose(t *testing.T) {
	longNaps(t, 2)
	fd, f := newBrief(t)
	ended := make(chan error, 1)
	go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
	napping(t, f)
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	require.Equal(t, lifetime.ErrClosed, within(t, ended))
	require.NoError(t, within(t, closed))
}

// TestNapIsShort checks that a goroutine that nothing wakes in time continues to sleep in Go's
// poller.
func TestNapIsShort(t *testing.T) {
	fd, f := newBrief(t)
	ended := make(chan error, 1)
	go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
	asleep.Until(t, 1, "eventfd.(*File).Wait", "eventfd.TestNapIsShort")
	time.Sleep(2 * napTime)
	_, err := unix.Write(fd, anEvent)
	require.NoError(t, err)
	require.NoError(t, within(t, ended))
	require.False(t, f.brief, "so the next one does not nap")
	require.NoError(t, f.Close())
}

// TestFewNap checks that half of the processors remain available.
func TestFewNap(t *testing.T) {
	longNaps(t, 4)
	ended := make(chan error, 3)
	var fds []int
	var files []*File
	wait := func() {
		fd, f := newBrief(t)
		fds, files = append(fds, fd), append(files, f)
		go func() { ended <- f.Wait(context.Background(), taker(fd)) }()
	}
	wait()
	napping(t, files[0])
	wait()
	napping(t, files[1])
	wait()
	asleep.Until(t, 1, "eventfd.(*File).Wait", "eventfd.TestFewNap")
	require.Equal(t, noBell, files[2].bell)
	for _, fd := range fds {
		_, err := unix.Write(fd, anEvent)
		require.NoError(t, err)
		require.NoError(t, within(t, ended))
	}
	require.Equal(t, bells.made, len(bells.free), "all are given back")
	for _, f := range files {
		require.NoError(t, f.Close())
	}
}
