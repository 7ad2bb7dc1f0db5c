// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// carriers are the connections that benchmarks compare: over the user-space RNIC with and without
// CRC, and Go's own TCP.
var carriers = []struct {
	name string
	pair func(b *testing.B) (c1, c2 net.Conn)
}{
	{"rsocket/crc=off", func(b *testing.B) (c1, c2 net.Conn) {
		return benchPair(b,
			usiw.Config{CRC: usiw.Off, RTR: usiw.Off})
	}},
	{"rsocket/crc=on", func(b *testing.B) (c1, c2 net.Conn) { return benchPair(b, usiw.Config{CRC: usiw.On}) }},
	{"tcp", tcpPair},
}

func benchPair(b *testing.B, cfg usiw.Config) (c1, c2 net.Conn) {
	rcfg := rsocket.Config{Device: usiwDevice(b, cfg)}
	return pairOn(b, rcfg, rcfg, "127.0.0.1:0")
}

func tcpPair(b *testing.B) (c1, c2 net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	c1, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	c2, err = ln.Accept()
	require.NoError(b, err)
	b.Cleanup(func() { c1.Close(); c2.Close() })
	return c1, c2
}

// answer echoes blocks of 64 bytes until the connection ends.
func answer(c net.Conn) {
	p := make([]byte, 64)
	for {
		if _, err := io.ReadFull(c, p); err != nil {
			return
		}
		if _, err := c.Write(p); err != nil {
			return
		}
	}
}

// BenchmarkRoundTrip measures a round trip of 64 bytes.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			c1, c2 := c.pair(b)
			go answer(c2)
			p := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c1.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c1, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream measures Writes of 1 MiB in one direction.
func BenchmarkStream(b *testing.B) {
	const size = 1 << 20
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			c1, c2 := c.pair(b)
			done := make(chan int64)
			go func() {
				var n int64
				p := make([]byte, 256<<10)
				for {
					k, err := c2.Read(p)
					n += int64(k)
					if err != nil {
						done <- n
						return
					}
				}
			}()
			p := make([]byte, size)
			b.SetBytes(size)
			b.ReportAllocs()
			sent := int64(0)
			for b.Loop() {
				n, err := c1.Write(p)
				if err != nil {
					b.Fatal(err)
				}
				sent += int64(n)
			}
			require.NoError(b, c1.(interface{ CloseWrite() error }).CloseWrite())
			require.Equal(b, sent, <-done)
		})
	}
}
