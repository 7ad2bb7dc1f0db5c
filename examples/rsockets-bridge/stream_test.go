// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// forms are the paths from a client to the target that the stream tests use.
var forms = []struct {
	name   string
	scheme string // of the target
	start  func(t *testing.T, target string) *process
}{
	{"tcp", schemeTCP, func(t *testing.T, target string) *process {
		return startBridge(t, "tcp://127.0.0.1:0",
			target)
	}},
	{"unix", schemeUnix, func(t *testing.T, target string) *process {
		return startBridge(t, "unix://"+filepath.Join(t.TempDir(), "socket"), target)
	}},
	{"rsocket", schemeTCP, func(t *testing.T, target string) *process {
		front, _ := chain(t, "usiw0", "127.0.0.1", target)
		return front
	}},
}

// everyForm runs a test over each form, with a bridge and a listener as its target.
func everyForm(t *testing.T, test func(t *testing.T, b *process, accept func() stream, scheme string)) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			ln, url := listenAt(t, f.scheme)
			b := f.start(t, url)
			test(t, b, func() stream { return acceptOne(t, ln) }, f.scheme)
		})
	}
}

// random returns bytes that do not repeat.
func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// sends writes all data from one end and closes that direction, while the other end reads until the
// end.
func sends(t *testing.T, from, to stream, data []byte) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write(data)
		sent <- errors.Join(err, from.CloseWrite())
	}()
	got, err := io.ReadAll(to)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(data, got), "%d bytes of %d arrived, or other ones", len(got), len(data))
}

// Either side closes its direction first; the other direction continues.
func TestHalfClose(t *testing.T) {
	data := random(1 << 20)
	everyForm(t, func(t *testing.T, b *process, accept func() stream, _ string) {
		for _, name := range []string{"client first", "target first"} {
			t.Run(name, func(t *testing.T) {
				client := b.dial(t)
				target := accept()
				first, second := client, target
				if name == "target first" {
					first, second = target, client
				}
				sends(t, first, second, data)
				exchangeOneWay(t, second, first)
				sends(t, second, first, data[1:])
			})
		}
	})
}

// exchangeOneWay sends a few bytes in the direction that is still open.
func exchangeOneWay(t *testing.T, from, to stream) {
	t.Helper()
	_, err := io.WriteString(from, "still open")
	require.NoError(t, err)
	got := make([]byte, len("still open"))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, "still open", string(got))
}

// A side that aborts has not sent the end of its data, and the other side must notice that.
func TestAbort(t *testing.T) {
	everyForm(t, func(t *testing.T, b *process, accept func() stream, scheme string) {
		if scheme == schemeUnix {
			t.Skip("unix sockets cannot be aborted")
		}
		for _, name := range []string{"client aborts", "target aborts"} {
			t.Run(name, func(t *testing.T) {
				client := b.dial(t)
				target := accept()
				exchangeOneWay(t, client, target)
				exchangeOneWay(t, target, client)
				first, second := client, target
				if name == "target aborts" {
					first, second = target, client
				}
				abort(first)
				_, err := second.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
		}
	})
}
