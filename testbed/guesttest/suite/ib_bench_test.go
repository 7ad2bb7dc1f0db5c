// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// BenchmarkComposed compares ib:rxe0 with rxe0, alternating, in 15 rounds: Writes of 64 bytes, one
// at a time and in lists of 16, posted and polled. It reports the median of the ratios as ib/bare.
func BenchmarkComposed(b *testing.B) {
	rdmatest.KernelDevice(b, "rxe0")
	for _, c := range []struct {
		name string
		list int
	}{{"write", 1}, {"list", 16}} {
		b.Run(c.name, func(b *testing.B) {
			in, err := verbs.DeviceByName("rxe0")
			require.NoError(b, err)
			dev, err := ibcompat.Wrap(in, ibcompat.Config{})
			require.NoError(b, err)
			defer func() { require.NoError(b, dev.CloseShared()) }()
			bare, ib := writer(b, in, c.list), writer(b, dev, c.list)
			const rounds, lists = 15, 200
			bare(lists)
			ib(lists)
			for b.Loop() {
				var ratios []float64
				for round := range rounds {
					first, second := bare, ib
					if round%2 == 1 {
						first, second = ib, bare
					}
					one, other := first(lists), second(lists)
					if round%2 == 1 {
						one, other = other, one
					}
					ratios = append(ratios, float64(other)/float64(one))
				}
				slices.Sort(ratios)
				b.ReportMetric(ratios[rounds/2], "ib/bare")
				b.ReportMetric(ratios[0], "least")
				b.ReportMetric(ratios[rounds-1], "most")
			}
		})
	}
}

// writer connects a QP of a device to another one on rxe0, and returns a function that posts and
// polls lists of Writes and returns how long that took.
func writer(b *testing.B, dev *verbs.Device, length int) func(lists int) time.Duration {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.Cleanup(cancel)
	in, err := verbs.DeviceByName("rxe0")
	require.NoError(b, err)
	var qps [2]*verbs.QP
	var mrs [2]*verbs.MR
	var ctxs [2]*verbs.Context
	for i, d := range []*verbs.Device{dev, in} {
		ctxs[i], err = d.Open()
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, ctxs[i].CloseAll()) })
		pd, err := ctxs[i].AllocPD()
		require.NoError(b, err)
		mrs[i], err = pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		require.NoError(b, err)
		cq, err := ctxs[i].CreateCQ(verbs.CQConfig{})
		require.NoError(b, err)
		qps[i], err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(b, err)
	}
	ln, err := cm.Listen(limit, "10.78.0.1:0", cm.Config{Context: ctxs[1]})
	require.NoError(b, err)
	defer func() { require.NoError(b, ln.Close()) }()
	accepted := make(chan *cm.ID, 1)
	go func() {
		defer close(accepted)
		if req, err := ln.Accept(limit); err == nil {
			if id, err := req.Accept(limit, qps[1], cm.ConnParam{}); err == nil {
				accepted <- id
			}
		}
	}()
	id, err := cm.Resolve(limit, ln.Addr().String(), cm.Config{Context: ctxs[0]})
	require.NoError(b, err)
	require.NoError(b, id.Connect(limit, qps[0], cm.ConnParam{}))
	other := <-accepted
	require.NotNil(b, other)
	b.Cleanup(func() { require.NoError(b, id.Close()); require.NoError(b, other.Close()) })

	sge, err := mrs[0].SGE(0, 64)
	require.NoError(b, err)
	list, wcs := make([]verbs.SendWR, length), make([]verbs.WC, length)
	for i := range list {
		list[i] = verbs.Write(verbs.Remote{Addr: mrs[1].Addr(), Length: 1 << 30, RKey: mrs[1].RKey()}, sge)
	}
	return func(lists int) time.Duration {
		start := time.Now()
		for range lists {
			if _, err := qps[0].PostSend(list); err != nil {
				b.Fatal(err)
			}
			for n := 0; n < length; {
				k, err := qps[0].SendCQ().Poll(wcs[n:])
				if err != nil {
					b.Fatal(err)
				}
				n += k
			}
			for _, wc := range wcs {
				if err := wc.Err(); err != nil {
					b.Fatal(err)
				}
			}
		}
		return time.Since(start)
	}
}
