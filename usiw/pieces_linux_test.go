// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

// tcpPair returns a stream and the connection at its other end.
func tcpPair(t *testing.T) (stream, net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, peer.Close()) })
	conn, err := ln.Accept()
	require.NoError(t, err)
	s, err := newStream(conn, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { s.drainAndClose(context.Background(), nil, time.Now()) })
	return s, peer
}

// arrives requires that the peer receives the bytes of pieces.
func arrives(t *testing.T, peer net.Conn, pieces [][]byte) {
	t.Helper()
	want := bytes.Join(pieces, nil)
	got := make([]byte, len(want))
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.ReadFull(peer, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

// TestStreamPieces passes a stream more pieces than one system call accepts: the rest goes in
// further calls.
func TestStreamPieces(t *testing.T) {
	s, peer := tcpPair(t)
	for _, n := range []int{1, 2, maxIovecs - 1, maxIovecs, maxIovecs + 1, 2*maxIovecs + 500} {
		bytes := make([]byte, n)
		for i := range bytes {
			bytes[i] = byte(i * i)
		}
		pieces := slices.Collect(slices.Chunk(bytes, 1))
		calls, left := 0, pieces
		for len(left) > 0 {
			took, err := s.write(left)
			require.NoError(t, err)
			require.Equal(t, min(len(left), maxIovecs), took)
			left = left[took:]
			calls++
		}
		require.Equal(t, (n+maxIovecs-1)/maxIovecs, calls)
		arrives(t, peer, pieces)
	}
}

// TestBatchPieces builds FPDUs whose payload is in one-byte pieces. No real request produces such
// pieces: pieces that are not copied are longer, so that a batch reaches its size limit first. Here
// the number of pieces decides: one call is made for every maxPieces pieces.
func TestBatchPieces(t *testing.T) {
	s, peer := tcpPair(t)
	r, mem := &region{}, []byte("0123456789abcdef")
	for _, n := range []int{1, 3, maxSGE} {
		const fpdus = 2000
		calls, total := 0, 0
		for left := fpdus; left > 0; calls++ {
			b := newBatch(false)
			for ; left > 0 && b.room(n); left-- {
				ddp.Tagged{Last: true}.Put(b.begin(ddp.TaggedLen+n, ddp.TaggedLen))
				for i := range n {
					require.True(t, r.enter())
					b.refer(r, mem[i:i+1])
				}
				b.end(true)
			}
			b.closePiece()
			require.LessOrEqual(t, len(b.pieces), maxPieces)
			require.Less(t, b.size, batchBytes)
			require.Less(t, len(b.arena), batchBytes)
			if left > 0 {
				require.Greater(t, len(b.pieces)+2*n+1, maxPieces, "another FPDU would have had room")
			}
			total += len(b.pieces)
			took, err := s.write(b.unsent())
			require.NoError(t, err)
			require.Equal(t, b.size, took)
			arrives(t, peer, b.pieces)
			b.free()
		}
		// one arena piece before each payload, and one after the last
		require.Equal(t, fpdus*(n+1)+calls, total, "pieces")
		require.Equal(t, (total+maxPieces-1)/maxPieces, calls)
	}
	require.True(t, r.guard.Shut())
	require.True(t, r.guard.Drain(time.Second), "every batch has let go of the memory")
}
