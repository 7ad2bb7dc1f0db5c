// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestBridge returns a bridge without a listener.
func newTestBridge(t *testing.T, dial func(ctx context.Context, e endpoint) (stream, error)) *bridge {
	t.Helper()
	return &bridge{target: endpoint{schemeTCP, "target:1"}, dial: dial, dialTimeout: limit,
		log: slog.New(slog.DiscardHandler)}
}

// tcpPair returns both ends of a TCP connection.
func tcpPair(t *testing.T) (accepted, dialled stream) {
	t.Helper()
	ln, _ := listenAt(t, schemeTCP)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return acceptOne(t, ln), c.(stream)
}

// pipe returns both ends of a connection in memory, for tests with synthetic time.
func pipe() (stream, stream) {
	there, back := newHalf(), newHalf()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

type half struct {
	*io.PipeReader
	*io.PipeWriter
}

func newHalf() half {
	r, w := io.Pipe()
	return half{r, w}
}

type pipeEnd struct {
	net.Conn // no other method is called
	in, out  half
}

func (p *pipeEnd) Read(b []byte) (int, error)  { return p.in.PipeReader.Read(b) }
func (p *pipeEnd) Write(b []byte) (int, error) { return p.out.PipeWriter.Write(b) }
func (p *pipeEnd) CloseWrite() error           { return p.out.PipeWriter.Close() }

func (p *pipeEnd) Close() error {
	p.in.PipeReader.Close()
	return p.out.PipeWriter.Close()
}
