// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMaxConns(t *testing.T) {
	ln, url := listenAt(t, schemeTCP)
	serveEach(t, ln, echo)
	b := startBridge(t, "tcp://127.0.0.1:0", url, "--max-conns", "2", "--metrics", "127.0.0.1:0")
	one, two := b.dial(t), b.dial(t)
	exchange(t, one, "the first")
	exchange(t, two, "the second")

	b.closesNext(t)
	line := b.await(t, "too many connections")
	require.Contains(t, line, "client=127.0.0.1:")
	require.Contains(t, line, "max-conns=2")

	exchange(t, one, "goes on")
	exchange(t, two, "goes on too")
	m := b.metrics(t)
	require.Equal(t, 3, m["accepted"])
	require.Equal(t, 2, m["active"])
	require.Equal(t, 1, m["refused"])
	require.Zero(t, m["aborted"])
	require.Equal(t, len("the first"+"the second"+"goes on"+"goes on too"), m["bytes_to_target"])
	require.Equal(t, m["bytes_to_target"], m["bytes_to_client"])

	// The place of a connection that ends becomes free again.
	require.NoError(t, one.Close())
	b.await(t, "msg=done")
	require.Eventually(t, func() bool { return b.metrics(t)["active"] == 1 }, limit, 5*time.Millisecond)
	exchange(t, b.dial(t), "the fourth")
}

// A client whose target is unreachable has its connection closed, and the log gives the reason in
// one line.
func TestUnreachable(t *testing.T) {
	for _, scheme := range []string{schemeTCP, schemeRSocket} {
		t.Run(scheme, func(t *testing.T) {
			target := scheme + "://" + nobody(t)
			b := startBridge(t, "tcp://127.0.0.1:0", target, "--metrics", "127.0.0.1:0")
			b.closesNext(t)
			line := b.await(t, "unreachable")
			require.Contains(t, line, "target="+target)
			require.Contains(t, line, "refused")
			client := regexp.MustCompile(`client=127\.0\.0\.1:\d+ `).FindString(line)
			require.NotEmpty(t, client, line)
			require.Len(t, b.lines(client), 1, b.Out.String())
			require.Equal(t, 1, b.metrics(t)["unreachable"])

			// Only this connection failed.
			if scheme == schemeRSocket {
				address := strings.TrimPrefix(target, scheme+"://")
				ln, echoes := listenAt(t, schemeTCP)
				serveEach(t, ln, echo)
				startBridge(t, "rsocket://"+address, echoes)
				exchange(t, b.dial(t), "somebody is there now")
			}
		})
	}
}

// silent is a target that does not answer.
func silent(ctx context.Context, _ endpoint) (stream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A target that does not answer is abandoned after --dial-timeout.
func TestDialTimeout(t *testing.T) {
	b := newTestBridge(t, silent)
	b.dialTimeout = time.Millisecond
	client, peer := tcpPair(t)
	b.take(t.Context(), client)
	_, err := peer.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	b.links.Wait()
	require.EqualValues(t, 1, b.metrics.unreachable.Value())
	require.Zero(t, b.metrics.active.Value())
}

// The end of --drain-timeout also cancels an attempt to reach the target.
func TestCutWhileDialling(t *testing.T) {
	b := newTestBridge(t, silent)
	client, peer := tcpPair(t)
	ctx, cut := context.WithCancelCause(t.Context())
	b.take(ctx, client)
	cut(errDrained)
	b.links.Wait()
	_, err := peer.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Zero(t, b.metrics.unreachable.Value())
	require.EqualValues(t, 1, b.metrics.aborted.Value())
}

// Only a connection on which nothing moves is idle. Time is synthetic: nothing really waits.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientPeer := pipe()
		target, targetPeer := pipe()
		l := newLink(client, target, new(metrics))
		ended := make(chan error, 1)
		go func() { ended <- l.run(t.Context(), time.Minute) }()

		// Bytes in either direction count.
		ends := []stream{clientPeer, targetPeer}
		for i := range 6 {
			time.Sleep(59 * time.Second)
			from, to := ends[i%2], ends[1-i%2]
			go func() { _, _ = from.Write([]byte("x")) }()
			_, err := io.ReadFull(to, make([]byte, 1))
			require.NoError(t, err)
		}
		moved := time.Now()
		synctest.Wait()
		require.Empty(t, ended)
		require.ErrorIs(t, <-ended, errIdle)
		require.Equal(t, time.Minute, time.Since(moved))
		_, err := clientPeer.Read(make([]byte, 1))
		require.Error(t, err)
		_, err = targetPeer.Write(make([]byte, 1))
		require.Error(t, err)
	})
}

// The same in a process.
func TestIdleTimeout(t *testing.T) {
	ln, url := listenAt(t, schemeTCP)
	serveEach(t, ln, echo)
	b := startBridge(t, "tcp://127.0.0.1:0", url, "--idle-timeout", "100ms", "--metrics", "127.0.0.1:0")
	c := b.dial(t)
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Contains(t, b.await(t, "aborted"), "idle")
	m := b.metrics(t)
	require.Equal(t, 1, m["idle"])
	require.Equal(t, 1, m["aborted"])
}

// After a transient error Accept is retried; a permanent one ends the bridge.
func TestAcceptFails(t *testing.T) {
	b := newTestBridge(t, func(context.Context, endpoint) (stream, error) { return nil, errors.New("no target") })
	client, peer := tcpPair(t)
	ln := &failing{errs: []error{
		&net.OpError{Op: "accept", Err: syscall.EMFILE}, &net.OpError{Op: "accept", Err: syscall.EMFILE}, nil,
		syscall.EBADF,
	}, c: client}
	require.ErrorIs(t, b.accept(t.Context(), ln), syscall.EBADF)
	require.Empty(t, ln.errs)
	b.links.Wait()
	_, err := peer.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.EqualValues(t, 1, b.metrics.accepted.Value())
}

// failing is a listener that returns one connection and errors.
type failing struct {
	net.Listener
	errs []error
	c    net.Conn
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return f.c, err
}
