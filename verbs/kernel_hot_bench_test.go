// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// hotPair is a QP in RTS and its CQ on a device whose posting and polling functions do next to
// nothing.
func hotPair(t testing.TB, dev string) (*verbs.QP, *verbs.CQ, *verbs.MR) {
	t.Helper()
	fakeverbs.Start(t)
	d, err := verbs.DeviceByName(dev)
	require.NoError(t, err)
	ctx, err := d.Open()
	require.NoError(t, err)
	t.Cleanup(func() {
		fakeverbs.SetHot(fakeverbs.HotOff)
		require.NoError(t, ctx.CloseAll())
	})
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQConfig{CQE: 1024})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 2}})
	require.NoError(t, err)
	toRTS(t, qp)
	return qp, cq, mr
}

// writes is a list of n Writes of 64 bytes.
func writes(mr *verbs.MR, n int) []verbs.SendWR {
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}}, RemoteAddr: 4096, RKey: 7}
	}
	return wrs
}

// median runs measurements alternately, so that what disturbs one disturbs the others, and returns
// the median of each in nanoseconds for each of iters.
func median(iters int, measure ...func(iters int) time.Duration) []float64 {
	const rounds = 15
	all := make([][]float64, len(measure))
	for range rounds {
		for i, m := range measure {
			all[i] = append(all[i], float64(m(iters).Nanoseconds())/float64(iters))
		}
	}
	out := make([]float64, len(measure))
	for i := range all {
		slices.Sort(all[i])
		out[i] = all[i][rounds/2]
	}
	return out
}

func timed(f func()) func(int) time.Duration {
	return func(iters int) time.Duration {
		start := time.Now()
		for range iters {
			f()
		}
		return time.Since(start)
	}
}

// BenchmarkPostSend is QP.PostSend of lists of Writes: nanoseconds for each request, how many times
// a C program's, and how many times a call from Go to a C function that does nothing.
func BenchmarkPostSend(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			qp, _, mr := hotPair(b, "fake0")
			fakeverbs.SetHot(fakeverbs.HotEndless)
			wrs := writes(mr, n)
			post := func() {
				if k, err := qp.PostSend(wrs); k != n || err != nil {
					b.Fatal(k, err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				post()
			}
			m := median(20000/n+100, timed(post),
				func(iters int) time.Duration { return fakeverbs.BenchPureCPost(n, iters) }, fakeverbs.BenchCgoCall)
			b.ReportMetric(m[0]/float64(n), "ns/WR")
			b.ReportMetric(m[0]/m[1], "xC")
			b.ReportMetric(m[0]/m[2], "xcgo")
		})
	}
}

// BenchmarkPostRecv is QP.PostRecv.
func BenchmarkPostRecv(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			qp, _, mr := hotPair(b, "fake0")
			fakeverbs.SetHot(fakeverbs.HotEndless)
			wrs := make([]verbs.RecvWR, n)
			for i := range wrs {
				wrs[i] = verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}}}
			}
			b.ReportAllocs()
			for b.Loop() {
				if k, err := qp.PostRecv(wrs); k != n || err != nil {
					b.Fatal(k, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/WR")
		})
	}
}

// BenchmarkPoll is CQ.Poll of full lists, with the same ratios for each completion.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, cq, _ := hotPair(b, "fake0")
			fakeverbs.SetHot(fakeverbs.HotEndless)
			wcs := make([]verbs.WC, n)
			poll := func() {
				if k, err := cq.Poll(wcs); k != n || err != nil {
					b.Fatal(k, err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				poll()
			}
			m := median(20000/n+100, timed(poll),
				func(iters int) time.Duration { return fakeverbs.BenchPureCPoll(n, iters) }, fakeverbs.BenchCgoCall)
			b.ReportMetric(m[0]/float64(n), "ns/CQE")
			b.ReportMetric(m[0]/m[1], "xC")
			b.ReportMetric(m[0]/m[2], "xcgo")
		})
	}
}

// BenchmarkPostPoll posts n signalled Writes and polls their completions.
func BenchmarkPostPoll(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			qp, cq, mr := hotPair(b, "fake0")
			fakeverbs.SetHot(fakeverbs.HotPaired)
			wrs, wcs := writes(mr, n), make([]verbs.WC, n)
			b.ReportAllocs()
			for b.Loop() {
				if k, err := qp.PostSend(wrs); k != n || err != nil {
					b.Fatal(k, err)
				}
				if k, err := cq.Poll(wcs); k != n || err != nil {
					b.Fatal(k, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/WR")
		})
	}
}
