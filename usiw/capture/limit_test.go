// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/verbs"
)

// limited records a conversation between endpoints whose names become a comment, and returns the
// file.
func limited(t *testing.T, cfg capture.Config) (file []byte, full bool) {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.New(&b, cfg)
	require.NoError(t, err)
	local, remote := &net.UnixAddr{Name: "one end", Net: "unix"}, &net.UnixAddr{Name: "other", Net: "unix"}
	tap := func(out bool, data []byte) {
		w.Packet(&usiw.Packet{Time: start, Local: local, Remote: remote, Out: out, Data: [][]byte{data}})
	}
	tap(true, request(t))
	tap(false, reply(t))
	for i, f := range sends(40) {
		tap(i%3 != 0, f)
	}
	full = w.Full()
	require.NoError(t, w.Err())
	require.NoError(t, w.Close())
	require.Equal(t, full, w.Full())
	return b.Bytes(), full
}

// stored is a packet as stored in a file.
type stored struct {
	data []byte
	info gopacket.CaptureInfo
}

func storedPackets(t *testing.T, file []byte) (all []stored) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, stored{data, info})
	}
}

// TestSnapLen: the file contains the first bytes of each packet, and its original length.
func TestSnapLen(t *testing.T) {
	file, _ := limited(t, capture.Config{})
	whole := storedPackets(t, file)
	for _, n := range []int{68, 100, 1 << 30} {
		file, full := limited(t, capture.Config{SnapLen: n})
		require.False(t, full)
		got := storedPackets(t, file)
		require.Len(t, got, len(whole))
		for i, p := range got {
			require.Equal(t, len(whole[i].data), p.info.Length)
			require.Equal(t, whole[i].data[:min(n, len(whole[i].data))], p.data)
		}
	}
}

// TestMaxBytes: a file never exceeds its limit, ends with a whole packet, and contains as many as
// fit.
func TestMaxBytes(t *testing.T) {
	whole, full := limited(t, capture.Config{})
	require.False(t, full)
	all := storedPackets(t, whole)
	last, ends := 0, map[int]bool{}
	for limit := len(whole) + 3; limit >= 1500; limit-- {
		if limit < len(whole)-40 && limit%211 != 0 {
			continue // each value near the end, some before
		}
		file, full := limited(t, capture.Config{MaxBytes: int64(limit)})
		require.Equal(t, limit < len(whole), full, limit)
		require.LessOrEqual(t, len(file), limit)
		require.True(t, bytes.HasPrefix(whole, file))
		got := storedPackets(t, file)
		require.Equal(t, all[:len(got)], got)
		if last > 0 && len(file) != last {
			require.Less(t, limit, last, "the packet that is missing would have fitted into %d bytes", limit)
		}
		last = len(file)
		ends[len(file)] = true
	}
	require.Greater(t, len(ends), 10)
	_, full = limited(t, capture.Config{MaxBytes: int64(len(whole))})
	require.False(t, full)
	short, full := limited(t, capture.Config{SnapLen: 68, MaxBytes: int64(len(whole)) - 1})
	require.False(t, full, "%d bytes", len(short))
}

// TestFullAlloc: a tap that no longer records costs nothing.
func TestFullAlloc(t *testing.T) {
	w, err := capture.New(io.Discard, capture.Config{MaxBytes: 2000})
	require.NoError(t, err)
	p := &usiw.Packet{Time: start, Local: here, Remote: there, Out: true, Data: [][]byte{make([]byte, 4000)}}
	for range 10 {
		w.Packet(p)
	}
	require.True(t, w.Full())
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Packet(p) }))
	require.NoError(t, w.Flush())
	require.NoError(t, w.Close())
}

func TestLimitsOutOfRange(t *testing.T) {
	for _, c := range []struct {
		cfg  capture.Config
		says string
	}{
		{capture.Config{SnapLen: 67}, "Config.SnapLen: 67 is neither 0 nor 68 or more"},
		{capture.Config{SnapLen: -1}, "Config.SnapLen: -1"},
		{capture.Config{MaxBytes: -1}, "Config.MaxBytes: -1"},
		{capture.Config{MaxBytes: 1000}, "Config.MaxBytes: 1000"},
		{capture.Config{Comment: strings.Repeat("c", 5000), Name: "n", MaxBytes: 6024},
			"Config.MaxBytes: 6024 is neither 0 nor 6025 or more"},
	} {
		var b bytes.Buffer
		_, err := capture.New(&b, c.cfg)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, c.says)
		require.Zero(t, b.Len())
	}
	// The lowest limit has room for the header.
	for _, n := range []int{1, 65535} {
		var b bytes.Buffer
		text := strings.Repeat("x", n)
		w, err := capture.New(&b, capture.Config{Name: text, Comment: text, MaxBytes: int64(2*n + 1024)})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Less(t, b.Len(), 2*n+1024)
		require.Empty(t, storedPackets(t, b.Bytes()))
	}
}
