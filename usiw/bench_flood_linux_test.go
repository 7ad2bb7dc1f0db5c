// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

const floods = 4

// BenchmarkFlood measures a 64-byte round trip beside connections that continuously write 1 MiB
// messages, and the throughput of those connections.
func BenchmarkFlood(b *testing.B) {
	b.Run("CRC=off", func(b *testing.B) { benchFlood(b, usiw.Config{CRC: usiw.Off}) })
	b.Run("CRC=on", func(b *testing.B) { benchFlood(b, usiw.Config{}) })
}

func benchFlood(b *testing.B, cfg usiw.Config) {
	pairs := connectPairs(b, cfg, 1+floods)
	var stop atomic.Bool
	var written atomic.Int64
	var flooding, answering sync.WaitGroup
	for _, p := range pairs[1:] {
		flooding.Go(func() {
			progress := 0
			for !stop.Load() {
				if progress == benchDepth {
					n, err := p.a.wait(p.a.scq, benchDepth)
					if err != nil {
						return
					}
					progress -= n
					written.Add(int64(n))
				}
				if _, err := p.a.qp.PostSend(
					p.a.next(verbs.WRRDMAWrite, verbs.SendSignaled, benchMessage, p.p)); err != nil {
					return
				}
				progress++
			}
		})
	}
	x, y := pairs[0].a, pairs[0].p
	answering.Go(func() {
		for y.receive() == nil {
			if _, err := y.qp.PostSend(y.next(verbs.WRRDMAWriteWithImm, 0, 64, x)); err != nil {
				return
			}
		}
	})
	var took []time.Duration
	used := processorTime()
	began := time.Now()
	for time.Since(began) < 4*crowdTime {
		start := time.Now()
		_, err := x.qp.PostSend(x.next(verbs.WRRDMAWriteWithImm, 0, 64, y))
		require.NoError(b, err)
		require.NoError(b, x.receive())
		took = append(took, time.Since(start))
	}
	b.ReportMetric(float64(written.Load())*benchMessage/1e6/time.Since(began).Seconds(), "MB/s")
	reportMean(b, took)
	reportTimes(b, took, 1, used)
	stop.Store(true)
	flooding.Wait()
	require.NoError(b, x.id.Close())
	answering.Wait()
}

// BenchmarkTCPFlood does the same over bare TCP.
func BenchmarkTCPFlood(b *testing.B) {
	var stop atomic.Bool
	var written atomic.Int64
	var flooding sync.WaitGroup
	for range floods {
		out, in, err := tcpPair()
		require.NoError(b, err)
		flooding.Go(func() {
			defer out.Close()
			mem, at := make([]byte, benchMemory), 0
			touch(mem)
			for !stop.Load() {
				if _, err := out.Write(mem[at : at+benchMessage]); err != nil {
					return
				}
				at = (at + benchMessage) % benchMemory
				written.Add(1)
			}
		})
		flooding.Go(func() {
			defer in.Close()
			mem, at := make([]byte, benchMemory), 0
			for {
				if _, err := io.ReadFull(in, mem[at:at+benchMessage]); err != nil {
					return
				}
				at = (at + benchMessage) % benchMemory
			}
		})
	}
	out, in, err := tcpPair()
	require.NoError(b, err)
	go func(in net.Conn) {
		defer in.Close()
		buf := make([]byte, 64)
		for {
			if _, err := io.ReadFull(in, buf); err != nil {
				return
			}
			if _, err := in.Write(buf); err != nil {
				return
			}
		}
	}(in)
	var took []time.Duration
	buf := make([]byte, 64)
	used := processorTime()
	began := time.Now()
	for time.Since(began) < 4*crowdTime {
		start := time.Now()
		_, err := out.Write(buf)
		require.NoError(b, err)
		_, err = io.ReadFull(out, buf)
		require.NoError(b, err)
		took = append(took, time.Since(start))
	}
	b.ReportMetric(float64(written.Load())*benchMessage/1e6/time.Since(began).Seconds(), "MB/s")
	reportMean(b, took)
	reportTimes(b, took, 1, used)
	stop.Store(true)
	require.NoError(b, out.Close())
	flooding.Wait()
}

func reportMean(b *testing.B, took []time.Duration) {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	b.ReportMetric(float64(sum.Nanoseconds())/1e3/float64(len(took)), "mean-us")
}
