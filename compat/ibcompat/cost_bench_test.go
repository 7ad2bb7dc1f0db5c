// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The benchmarks BenchmarkCost compare wrapped devices with the inner devices, or with what the
// inner device can do instead. Each alternates between its contestants in one process, so that they
// are disturbed alike. "make bench-peers" prints the ratios.

// contestant is an alternative to be measured. run executes n operations.
type contestant struct {
	name string // of the metric, with its unit: us or ns
	run  func(n int)
}

// contest measures the contestants by turns, n operations at a time, and reports the median time of
// an operation for each.
func contest(b *testing.B, n int, all ...contestant) {
	times := make([][]float64, len(all))
	forwards := true
	for b.Loop() {
		for i := range all {
			if !forwards {
				i = len(all) - 1 - i
			}
			start := time.Now()
			all[i].run(n)
			times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/float64(n))
		}
		forwards = !forwards
	}
	for i, c := range all {
		slices.Sort(times[i])
		f := times[i][len(times[i])/2]
		if unit := c.name[len(c.name)-2:]; unit == "us" {
			f /= 1e3
		}
		b.ReportMetric(f, c.name)
	}
	b.ReportMetric(0, "ns/op") // the total of all contestants is meaningless
}

// rnicOf returns the device for both ends of a connection: an RNIC without some operations, plain
// or wrapped.
func rnicOf(b *testing.B, without verbs.OpSet, wrapped bool) *verbs.Device {
	in, dev := newIWARP(b, without, ibcompat.Config{})
	if wrapped {
		return dev
	}
	return in
}

// side is an end with memory for long messages, and lists of requests that are posted repeatedly.
type side struct {
	*end
	mem  *verbs.MR
	recv [1]verbs.RecvWR
	list []verbs.SendWR
	wcs  [8]verbs.WC
}

// sides connects two ends with size bytes of memory each.
func sides(b *testing.B, dev *verbs.Device, size int) (x, y *side) {
	x, y = new(side), new(side)
	x.end, y.end = connect(b, open(b, dev), open(b, dev), verbs.QPConfig{})
	for _, s := range []*side{x, y} {
		var err error
		s.mem, err = s.pd.AllocMR(2*size, allRights)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, s.mem.Close()) })
		clear(s.mem.Bytes()) // so that it is backed by pages of its own
		sge, err := s.mem.SGE(size, size)
		require.NoError(b, err)
		s.recv[0].SGL = []verbs.SGE{sge}
	}
	return x, y
}

// data returns the first n bytes of a side's memory.
func (s *side) data(n int) []verbs.SGE {
	sge, err := s.mem.SGE(0, n)
	require.NoError(s, err)
	return []verbs.SGE{sge}
}

// there returns where a side's data are written in the other's memory.
func (s *side) there() verbs.Remote {
	return verbs.Remote{Addr: s.mem.Addr(), Length: 1 << 30, RKey: s.mem.RKey()}
}

// receives waits for a message and posts another receive. It reports false when the connection is
// closed.
func (s *side) receives(ctx context.Context) bool {
	for {
		n, err := s.cq.Wait(ctx, s.wcs[:])
		if err != nil {
			return false
		}
		for _, wc := range s.wcs[:n] {
			if wc.Status != verbs.WCSuccess {
				return false
			}
			if wc.IsRecv() {
				_, err := s.qp.PostRecv(s.recv[:])
				return err == nil
			}
		}
	}
}

// thereAndBack makes two sides take turns sending requests, the last of which consumes a receive of
// the other, with CQ.Wait on both sides. requests returns the requests of one side.
func thereAndBack(b *testing.B, dev *verbs.Device, size int, requests func(from, to *side) []verbs.SendWR) func(n int) {
	x, y := sides(b, dev, size)
	x.list, y.list = requests(x, y), requests(y, x)
	for range 4 {
		for _, s := range []*side{x, y} {
			_, err := s.qp.PostRecv(s.recv[:])
			require.NoError(b, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for y.receives(ctx) {
			_, _ = y.qp.PostSend(y.list)
		}
	}()
	b.Cleanup(func() { cancel(); <-over })
	return func(n int) {
		for range n {
			if _, err := x.qp.PostSend(x.list); err != nil {
				b.Fatal(err)
			}
			if !x.receives(b.Context()) {
				b.Fatal("the connection is over")
			}
		}
	}
}

// sends returns the requests of a Send.
func sends(size int) func(from, to *side) []verbs.SendWR {
	return func(from, _ *side) []verbs.SendWR {
		return []verbs.SendWR{{Opcode: verbs.WRSend, SGL: from.data(size)}}
	}
}

// alone posts the requests, of which the last is signaled, with inProgress of them in flight; an
// operation is a single request. The program of the other side sleeps.
func alone(b *testing.B, dev *verbs.Device, size, inProgress int,
	request func(from, to *side) verbs.SendWR) func(n int) {
	x, y := sides(b, dev, size)
	x.list = []verbs.SendWR{request(x, y)}
	return func(n int) {
		for posted, done := 0, 0; done < n; {
			for ; posted < n && posted-done < inProgress; posted++ {
				if _, err := x.qp.PostSend(x.list); err != nil {
					b.Fatal(err)
				}
			}
			k, err := x.cq.Wait(b.Context(), x.wcs[:])
			if err != nil {
				b.Fatal(err)
			}
			for _, wc := range x.wcs[:k] {
				if wc.Status != verbs.WCSuccess {
					b.Fatal(wc.Err())
				}
			}
			done += k
		}
	}
}

func writeOf(size int, flags verbs.SendFlags) func(from, to *side) verbs.SendWR {
	return func(from, to *side) verbs.SendWR {
		wr := verbs.Write(to.there(), from.data(size)...)
		wr.Flags |= flags
		return wr
	}
}

func readOf(size int) func(from, to *side) verbs.SendWR {
	return func(from, to *side) verbs.SendWR { return verbs.Read(to.there(), from.data(size)...) }
}

func fetchAdd(from, to *side) verbs.SendWR { return verbs.FetchAdd(to.there(), 1, from.data(8)...) }

// BenchmarkCostOneSided compares one-sided operations over RNICs with RFC 7306. A Write on the
// wrapped device completes when the peer has the data, or with SendRelaxed as early as on the inner
// device.
func BenchmarkCostOneSided(b *testing.B) {
	const mib = 1 << 20
	for _, c := range []struct {
		name             string
		ops              int
		size, inProgress int
		request          func(from, to *side) verbs.SendWR
	}{
		{"read", 100, 64, 1, readOf(64)},
		{"fetchadd", 100, 64, 1, fetchAdd},
		{"write-relaxed", 200, 64, 1, writeOf(64, verbs.SendRelaxed)},
		{"write", 100, 64, 1, writeOf(64, 0)},
		{"stream", 20, mib, 4, writeOf(mib, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			contest(b, c.ops,
				contestant{"bare-us", alone(b, rnicOf(b, 0, false), c.size, c.inProgress, c.request)},
				contestant{"ib-us", alone(b, rnicOf(b, 0, true), c.size, c.inProgress, c.request)})
		})
	}
}

// BenchmarkCostSend compares round trips of Sends over RNICs with RFC 7306.
func BenchmarkCostSend(b *testing.B) {
	for _, c := range []struct {
		name      string
		ops, size int
	}{{"64", 100, 64}, {"1MiB", 4, 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			contest(b, c.ops,
				contestant{"bare-us", thereAndBack(b, rnicOf(b, 0, false), c.size, sends(c.size))},
				contestant{"ib-us", thereAndBack(b, rnicOf(b, 0, true), c.size, sends(c.size))})
		})
	}
}

// BenchmarkCostPlain compares emulated operations over RNICs without RFC 7306 with the inner
// device's alternatives: an atomic with a round trip of Sends, and a Write with immediate with a
// Write and a Send.
func BenchmarkCostPlain(b *testing.B) {
	b.Run("fetchadd", func(b *testing.B) {
		contest(b, 100,
			contestant{"bare-us", thereAndBack(b, rnicOf(b, ext.Operations, false), 64, sends(64))},
			contestant{"ib-us", alone(b, rnicOf(b, ext.Operations, true), 64, 1, fetchAdd)})
	})
	b.Run("write-imm", func(b *testing.B) {
		contest(b, 100,
			contestant{"bare-us", thereAndBack(b, rnicOf(b, ext.Operations, false), 64,
				func(from, to *side) []verbs.SendWR {
					return []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, SGL: from.data(64), RemoteAddr: to.mem.Addr(),
						RKey: to.mem.RKey()}, {Opcode: verbs.WRSend}}
				})},
			contestant{"ib-us", thereAndBack(b, rnicOf(b, ext.Operations, true), 64,
				func(from, to *side) []verbs.SendWR {
					return []verbs.SendWR{{Opcode: verbs.WRRDMAWriteWithImm, SGL: from.data(64),
						RemoteAddr: to.mem.Addr(), RKey: to.mem.RKey(), Imm: 7}}
				})})
	})
}

// BenchmarkCostMasked compares masked atomics composed of CmpSwaps with a FetchAdd of the inner
// device: with a right guess each time, and with a wrong one, because two words alternate.
func BenchmarkCostMasked(b *testing.B) {
	for _, c := range []struct {
		name  string
		words int
	}{{"right", 1}, {"wrong", 2}} {
		b.Run(c.name, func(b *testing.B) {
			in, dev := newRoCE(b)
			contest(b, 100, contestant{"bare-us",
				adds(b, in, c.words, func(x *side, to verbs.Remote) verbs.SendWR {
					return verbs.FetchAdd(to, 1,
						x.data(8)...)
				})}, contestant{"ib-us", adds(b, dev, c.words, func(x *side, to verbs.Remote) verbs.SendWR {
				return ext.MaskedFetchAddWR(to, 1, 1<<31, x.data(8)...)
			})})
		})
	}
}

// adds changes the words by turns.
func adds(b *testing.B, dev *verbs.Device, words int, request func(x *side, to verbs.Remote) verbs.SendWR) func(n int) {
	x, y := sides(b, dev, 64)
	var lists [][]verbs.SendWR
	for i := range words {
		to := y.there()
		to.Addr += uint64(8 * i)
		lists = append(lists, []verbs.SendWR{request(x, to)})
	}
	return func(n int) {
		for i := range n {
			if _, err := x.qp.PostSend(lists[i%words]); err != nil {
				b.Fatal(err)
			}
			if k, err := x.cq.Wait(b.Context(), x.wcs[:1]); k != 1 || err != nil || x.wcs[0].Status != verbs.WCSuccess {
				b.Fatal(k, err, x.wcs[0].Err())
			}
		}
	}
}
