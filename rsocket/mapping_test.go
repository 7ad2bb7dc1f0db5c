// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bytes"
	"io"
	"math"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// mappingPair is like pair, with room for the given number of mappings of the other side.
func mappingPair(t *testing.T, places int, change func(cfg *rsocket.Config)) (c1, c2 *rsocket.Conn) {
	t.Helper()
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{}), KeepAlive: rsocket.None, Mappings: places}
	if change != nil {
		change(&cfg)
	}
	return pairOn(t, cfg, cfg, "127.0.0.1:0")
}

// told sends a byte and reads it on the other side, which then knows earlier mappings.
func told(t *testing.T, from, to net.Conn) {
	t.Helper()
	_, err := from.Write([]byte{1})
	require.NoError(t, err)
	_, err = io.ReadFull(to, make([]byte, 1))
	require.NoError(t, err)
}

// Bytes written to a mapping are there when the data that follows on the stream is read. They are
// neither in the stream nor anywhere else.
func TestWriteAt(t *testing.T) {
	tiny := func(cfg *rsocket.Config) {
		cfg.RecvBuffer, cfg.SendBuffer, cfg.RecvQueue, cfg.SendQueue, cfg.Inline = 4096, 4096, 16, 16, rsocket.None
	}
	for name, change := range map[string]func(*rsocket.Config){"defaults": nil, "tiny": tiny} {
		t.Run(name, func(t *testing.T) {
			c1, c2 := mappingPair(t, 2, change)
			const size = 100_000
			const first, second = 5000, math.MaxInt64 - size
			low, err := c1.Map(size, first)
			require.NoError(t, err)
			high, err := c1.Map(size, second)
			require.NoError(t, err)
			told(t, c1, c2)
			p := bytes.Repeat([]byte("0123456789"), 5000)
			n, err := c2.WriteAt(p, first+100)
			require.NoError(t, err)
			require.Equal(t, len(p), n)
			_, err = c2.WriteAt([]byte{7}, second+size-1)
			require.NoError(t, err)
			told(t, c2, c1)
			want := make([]byte, size)
			copy(want[100:], p)
			require.Equal(t, want, low.MR().Bytes())
			want = make([]byte, size)
			want[size-1] = 7
			require.Equal(t, want, high.MR().Bytes())
			exchangeAll(t, c1, c2)
		})
	}
}

// exchangeAll sends data, closes both directions and requires that the stream is intact.
func exchangeAll(t *testing.T, c1, c2 *rsocket.Conn) {
	t.Helper()
	p := bytes.Repeat([]byte{1, 2, 3}, 70_000)
	for _, c := range [][2]*rsocket.Conn{{c1, c2}, {c2, c1}} {
		wrote := make(chan error, 1)
		go func() {
			_, err := c[0].Write(p)
			if err == nil {
				err = c[0].CloseWrite()
			}
			wrote <- err
		}()
		got, err := io.ReadAll(c[1])
		require.NoError(t, err)
		require.NoError(t, <-wrote)
		require.Equal(t, p, got)
	}
}

func TestMappingRefused(t *testing.T) {
	for _, n := range []int{-1, 129} {
		lc := rsocket.ListenConfig{Config: rsocket.Config{Mappings: n}}
		_, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "Config.Mappings")
	}
	c1, c2 := mappingPair(t, 1, nil)
	for _, c := range []struct {
		n      int
		offset int64
	}{{0, 0}, {-1, 0}, {1, -1}, {2, math.MaxInt64 - 1}, {math.MaxUint32 + 1, 0}} {
		_, err := c1.Map(c.n, c.offset)
		require.ErrorIs(t, err, verbs.ErrInvalid, "%v", c)
	}
	_, err := c2.WriteAt([]byte{1}, 0)
	require.ErrorIs(t, err, rsocket.ErrNoMapping)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	m, err := c1.Map(10, 100)
	require.NoError(t, err)
	_, err = c1.Map(10, 200)
	require.ErrorIs(t, err, rsocket.ErrNoMapping, "the peer takes one")
	told(t, c1, c2)
	for _, offset := range []int64{99, 110, math.MaxInt64 - 1} {
		n, err := c2.WriteAt([]byte{1}, offset)
		require.Zero(t, n)
		require.ErrorIs(t, err, rsocket.ErrNoMapping, "%d", offset)
	}
	_, err = c2.WriteAt([]byte{1}, -1)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = c2.WriteAt([]byte{1, 2}, math.MaxInt64)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	n, err := c2.WriteAt([]byte("0123456789ab"), 100)
	require.ErrorIs(t, err, rsocket.ErrNoMapping)
	require.Equal(t, 10, n)
	told(t, c2, c1)
	require.Equal(t, "0123456789", string(m.MR().Bytes()))
}

// A hundred mappings, successively in the same place, do not cost the peer's queue a message.
func TestMapAgain(t *testing.T) {
	c1, c2 := mappingPair(t, 1, func(cfg *rsocket.Config) { cfg.RecvQueue = 16 })
	for i := range 100 {
		m, err := c1.Map(8, int64(i))
		require.NoError(t, err)
		told(t, c1, c2)
		_, err = c2.WriteAt([]byte{byte(i)}, int64(i)+7)
		require.NoError(t, err)
		told(t, c2, c1)
		require.Equal(t, byte(i), m.MR().Bytes()[7])
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
	}
	var none *rsocket.Mapping
	require.NoError(t, none.Close())
}

// A peer that writes to memory that is no longer mapped loses its connection; others are not
// affected.
func TestMappingClosed(t *testing.T) {
	c1, c2 := mappingPair(t, 2, nil)
	gone, err := c1.Map(64, 0)
	require.NoError(t, err)
	_, err = c1.Map(64, 100) // lives as long as the connection
	require.NoError(t, err)
	told(t, c1, c2)
	require.NoError(t, gone.Close())
	_, err = c2.WriteAt([]byte{1}, 0)
	require.NoError(t, err)
	_, err = c2.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotEqual(t, io.EOF, err)
	require.NoError(t, c1.Close())
	_, err = c1.Map(1, 0)
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = c1.WriteAt([]byte{1}, 0)
	require.ErrorIs(t, err, net.ErrClosed)
}
