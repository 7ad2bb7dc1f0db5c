// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// signalled is how many connections are opened.
const signalled = 40

// TestOneHostSignals: signals, as Go's runtime sends them to its threads, do not disturb a program
// that connects. On kernel siw they would end the connection that rdma_connect establishes, and
// with it the listener.
func TestOneHostSignals(t *testing.T) {
	each(t, "siw0", []string{"siw0"}, func(t *testing.T, s *site) {
		n := s.serve(t)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				signalThreads(t)
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Microsecond):
				}
			}
		}()
		t.Cleanup(func() {
			close(stop)
			<-stopped
		})
		for range signalled {
			require.NoError(t, s.dial(t, n.Addr()).Close())
		}
	})
}

// signalThreads sends the signal that Go's runtime uses to each thread of this process.
func signalThreads(t *testing.T) {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Error(err)
	}
	for _, path := range threads {
		if id, err := strconv.Atoi(filepath.Base(path)); err == nil {
			_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG) // the thread may have exited
		}
	}
}
