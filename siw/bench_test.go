// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// end is one side of a connection for benchmarks.
type end struct {
	pd   *verbs.PD
	scq  *verbs.CQ
	rcq  *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	id   *cm.ID
	wcs  [64]verbs.WC
	recv [1]verbs.RecvWR
}

const benchMemory = 4 << 20

func newEnd(tb testing.TB, c *verbs.Context) *end {
	e := &end{}
	var err error
	e.pd, err = c.AllocPD()
	require.NoError(tb, err)
	e.scq, err = c.CreateCQ(verbs.CQConfig{})
	require.NoError(tb, err)
	e.rcq, err = c.CreateCQ(verbs.CQConfig{})
	require.NoError(tb, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, Cap: verbs.QPCap{MaxInlineData: 256}})
	require.NoError(tb, err)
	e.mr, err = e.pd.AllocMR(benchMemory, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	require.NoError(tb, err)
	return e
}

// connectEnds makes a connection between two NICs of this process.
func connectEnds(tb testing.TB, cfg siw.Config) (active, passive *end) {
	ctx := context.Background()
	nic, err := siw.New(cfg)
	require.NoError(tb, err)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	require.NoError(tb, err)
	accepted := make(chan *end, 1)
	go func() {
		r, err := ln.Accept(ctx)
		require.NoError(tb, err)
		e := newEnd(tb, r.Context())
		e.id, err = r.Accept(ctx, e.qp, cm.ConnParam{})
		require.NoError(tb, err)
		accepted <- e
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()})
	require.NoError(tb, err)
	active = newEnd(tb, id.Context())
	active.id = id
	require.NoError(tb, id.Connect(ctx, active.qp, cm.ConnParam{}))
	passive = <-accepted
	tb.Cleanup(func() {
		require.NoError(tb, active.id.Close())
		require.NoError(tb, passive.id.Close())
		require.NoError(tb, ln.Close())
		v, err := nic.Device().SharedContext()
		require.NoError(tb, err)
		require.NoError(tb, v.CloseAll())
		require.NoError(tb, nic.Close())
	})
	return active, passive
}

// wait takes one completion from a queue, as a goroutine that sleeps between.
func (e *end) wait(tb testing.TB, cq *verbs.CQ) verbs.WC {
	if _, err := cq.Wait(context.Background(), e.wcs[:1]); err != nil {
		tb.Fatal(err)
	}
	if e.wcs[0].Status != verbs.WCSuccess {
		tb.Fatal(e.wcs[0].Status)
	}
	return e.wcs[0]
}

// BenchmarkWriteImmPingPong is half a round trip of an RDMA Write of 64 octets with an immediate.
func BenchmarkWriteImmPingPong(b *testing.B) {
	a, p := connectEnds(b, siw.Config{})
	sge, err := a.mr.SGE(0, 64)
	require.NoError(b, err)
	psge, err := p.mr.SGE(0, 64)
	require.NoError(b, err)
	for _, e := range []*end{a, p} {
		for range 8 {
			_, err := e.qp.PostRecv(e.recv[:])
			require.NoError(b, err)
		}
	}
	go func() {
		wr := []verbs.SendWR{{Opcode: verbs.WRRDMAWriteWithImm, SGL: []verbs.SGE{psge}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}}
		for {
			if _, err := p.rcq.Wait(context.Background(), p.wcs[:1]); err != nil || p.wcs[0].Status != verbs.WCSuccess {
				return
			}
			_, _ = p.qp.PostRecv(p.recv[:])
			_, _ = p.qp.PostSend(wr)
		}
	}()
	wr := []verbs.SendWR{{Opcode: verbs.WRRDMAWriteWithImm, SGL: []verbs.SGE{sge}, RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.qp.PostSend(wr)
		a.wait(b, a.rcq)
		_, _ = a.qp.PostRecv(a.recv[:])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2/1000, "us/oneway")
}

// BenchmarkTCPPingPong is the same over bare TCP.
func BenchmarkTCPPingPong(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 64)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			_, _ = c.Write(buf)
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	defer c.Close()
	buf := make([]byte, 64)
	for b.Loop() {
		_, _ = c.Write(buf)
		_, _ = c.Read(buf)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2/1000, "us/oneway")
}

// BenchmarkWrite is a stream of RDMA Writes of 1 MiB, four in progress.
func BenchmarkWrite(b *testing.B) {
	for _, crc := range []siw.Policy{siw.On, siw.Off} {
		b.Run(fmt.Sprintf("crc=%v", crc), func(b *testing.B) {
			a, p := connectEnds(b, siw.Config{CRC: crc})
			const size, depth = 1 << 20, 4
			var wrs [depth][]verbs.SendWR
			for i := range wrs {
				sge, err := a.mr.SGE(i*size, size)
				require.NoError(b, err)
				wrs[i] = []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
					RemoteAddr: p.mr.Addr() + uint64(i*size), RKey: p.mr.RKey()}}
			}
			b.SetBytes(size)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i >= depth {
					a.wait(b, a.scq)
				}
				if _, err := a.qp.PostSend(wrs[i%depth]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			for range min(i, depth) {
				a.wait(b, a.scq)
			}
		})
	}
}

// BenchmarkFetchAdd is a stream of fetch-and-adds, posted in lists.
func BenchmarkFetchAdd(b *testing.B) {
	for _, depth := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			a, p := connectEnds(b, siw.Config{})
			wrs := make([]verbs.SendWR, depth)
			for i := range wrs {
				sge, err := a.mr.SGE(i*8, 8)
				require.NoError(b, err)
				wrs[i] = verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGL: []verbs.SGE{sge}, Add: 1, RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}
			}
			wrs[depth-1].Flags = verbs.SendSignaled
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.qp.PostSend(wrs); err != nil {
					b.Fatal(err)
				}
				a.wait(b, a.scq)
			}
			b.ReportMetric(float64(b.N*depth)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}
