// SPDX-License-Identifier: BSD-3-Clause

package asleep

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func receive(c chan int) { <-c }

// TestUntil: goroutines count only once they are blocked, and only in the named functions.
func TestUntil(t *testing.T) {
	const name = "asleep.receive"
	c := make(chan int)
	var started atomic.Bool
	release := make(chan int)
	busy := func(f func()) { // keeps running, and reaches f when released
		started.Store(true)
		for {
			select {
			case <-release:
				f()
				return
			default:
				runtime.Gosched()
			}
		}
	}
	go receive(c)
	go busy(func() { receive(c) })
	require.NoError(t, until(limit, 1, []string{name}))
	require.Eventually(t, started.Load, limit, time.Millisecond)
	require.ErrorContains(t, until(10*time.Millisecond, 2, []string{name}),
		"1 of 2 goroutines wait in asleep.receive:\n\ngoroutine ")
	close(release)
	Until(t, 2, name)
	Until(t, 2, name, "asleep.TestUntil")
	require.Error(t, until(10*time.Millisecond, 1, []string{name, "asleep.nobody"}))
	close(c)
}

// TestUntilWaits blocks goroutines in the other ways.
func TestUntilWaits(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error)
	go func() {
		_, err := ln.Accept()
		ended <- err
	}()
	Until(t, 1, "net.(*TCPListener).Accept", "asleep.TestUntilWaits")
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)

	stop := make(chan int)
	go func() {
		select {
		case <-stop:
		case <-time.After(time.Hour):
		}
		_, err := os.Stat("/nowhere")
		ended <- err
	}()
	Until(t, 1, "asleep.TestUntilWaits.func2")
	close(stop)
	require.Error(t, <-ended)
}

func TestCount(t *testing.T) {
	const trace = `goroutine 1 [running]:
main.f()
	/f.go:1

goroutine 18 [IO wait, 2 minutes]:
main.f()
	/f.go:2
main.g()

goroutine 19 [selecting]:
main.f()

goroutine 20 [chan receive (nil chan), locked to thread]:
main.f()
created by main.h in goroutine 1

goroutine 21 [sync.Mutex.Lock]:
main.f()

goroutine 22 [select]:
main.h()
`
	require.Equal(t, 2, count(trace, []string{"main.f"}))
	require.Equal(t, 1, count(trace, []string{"main.f", "main.g"}))
	require.Equal(t, 1, count(trace, []string{"main.f", "created by main.h"}))
	require.Equal(t, 2, count(trace, []string{"main.h"}))
	require.Zero(t, count("", []string{"main.f"}))
}
