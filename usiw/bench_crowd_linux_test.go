// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// crowd is one side of many connections that share a CQ.
type crowd struct {
	how  string
	nic  *usiw.NIC
	v    *verbs.Context
	ch   *verbs.CompChannel
	cq   *verbs.CQ
	pd   *verbs.PD
	mr   *verbs.MR
	qps  map[uint32]*verbs.QP
	ids  []*cm.ID
	wcs  [64]verbs.WC
	recv [1]verbs.RecvWR
	send [1]verbs.SendWR
}

func newCrowd(tb testing.TB, how string) *crowd {
	c := &crowd{how: how, qps: make(map[uint32]*verbs.QP)}
	var err error
	var nic usiw.Config
	if how == "spin" {
		nic.Spin = 50 * time.Microsecond
	}
	c.nic, err = usiw.New(nic)
	require.NoError(tb, err)
	c.v, err = c.nic.Device().SharedContext()
	require.NoError(tb, err)
	cfg := verbs.CQConfig{CQE: 1 << 16}
	if how == "channel" {
		c.ch, err = c.v.CreateCompChannel()
		require.NoError(tb, err)
		cfg.Channel = c.ch
	}
	c.cq, err = c.v.CreateCQ(cfg)
	require.NoError(tb, err)
	c.pd, err = c.v.AllocPD()
	require.NoError(tb, err)
	c.mr, err = c.pd.AllocMR(128, verbs.AccessLocalWrite)
	require.NoError(tb, err)
	in, err := c.mr.SGE(0, 64)
	require.NoError(tb, err)
	out, err := c.mr.SGE(64, 64)
	require.NoError(tb, err)
	c.recv[0].SGL = []verbs.SGE{in}
	c.send[0] = verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{out}}
	return c
}

func (c *crowd) qp(tb testing.TB) *verbs.QP {
	qp, err := c.pd.CreateQP(verbs.QPConfig{SendCQ: c.cq, RecvCQ: c.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16}})
	require.NoError(tb, err)
	return qp
}

func (c *crowd) close(tb testing.TB) {
	for _, id := range c.ids {
		require.NoError(tb, id.Close())
	}
	require.NoError(tb, c.v.CloseAll())
	require.NoError(tb, c.nic.Close())
}

// joinCrowds makes n connections between two crowds.
func joinCrowds(tb testing.TB, a, b *crowd, n int) {
	ctx := context.Background()
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: b.nic.Device(), Backlog: 1024})
	require.NoError(tb, err)
	for range n {
		accepted := make(chan error, 1)
		go func() {
			r, err := ln.Accept(ctx)
			if err == nil {
				qp := b.qp(tb)
				err = r.BindQP(qp)
				if err == nil {
					_, err = qp.PostRecv([]verbs.RecvWR{b.recv[0], b.recv[0]})
				}
				var id *cm.ID
				if err == nil {
					id, err = r.Accept(ctx, qp, cm.ConnParam{})
				}
				b.qps[qp.Num()] = qp
				b.ids = append(b.ids, id)
			}
			accepted <- err
		}()
		id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: a.nic.Device()})
		require.NoError(tb, err)
		qp := a.qp(tb)
		require.NoError(tb, id.BindQP(qp))
		_, err = qp.PostRecv([]verbs.RecvWR{a.recv[0], a.recv[0]})
		require.NoError(tb, err)
		require.NoError(tb, id.Connect(ctx, qp, cm.ConnParam{}))
		require.NoError(tb, <-accepted)
		a.qps[qp.Num()] = qp
		a.ids = append(a.ids, id)
	}
	require.NoError(tb, ln.Close())
}

// completions waits in the mode being measured, and returns at least one completion.
func (c *crowd) completions() ([]verbs.WC, error) {
	var n int
	var err error
	switch c.how {
	case "poll":
		for n, err = c.cq.Poll(c.wcs[:]); n == 0 && err == nil; n, err = c.cq.Poll(c.wcs[:]) {
			runtime.Gosched()
		}
	case "wait", "spin":
		n, err = c.cq.Wait(context.Background(), c.wcs[:])
	case "channel":
		for n, err = c.cq.Poll(c.wcs[:]); n == 0 && err == nil; n, err = c.cq.Poll(c.wcs[:]) {
			if err = c.cq.ReqNotify(false); err != nil {
				return nil, err
			}
			if n, err = c.cq.Poll(c.wcs[:]); n > 0 || err != nil {
				break
			}
			if _, err = c.ch.Wait(context.Background()); err != nil {
				return nil, err
			}
		}
	}
	return c.wcs[:n], err
}

// answer sends 64 bytes over the connection and posts a receive for the next.
func (c *crowd) answer(num uint32) error {
	qp := c.qps[num]
	if _, err := qp.PostRecv(c.recv[:]); err != nil {
		return err
	}
	return c.ping(qp)
}

func (c *crowd) ping(qp *verbs.QP) error {
	_, err := qp.PostSend(c.send[:])
	return err
}

// serve answers until the connections end.
func (c *crowd) serve() error {
	for {
		wcs, err := c.completions()
		if err != nil {
			return err
		}
		for i := range wcs {
			if wcs[i].Status == verbs.WCWRFlushErr {
				return nil
			}
			if err := c.answer(wcs[i].QPNum); err != nil {
				return err
			}
		}
	}
}

// BenchmarkCrowd keeps one round trip outstanding on each of n connections that share a CQ, or on
// only one of them. It reports the median in microseconds.
func BenchmarkCrowd(b *testing.B) {
	for _, how := range []string{"poll", "wait", "spin", "channel"} {
		for _, c := range []struct{ conns, active int }{{1, 1}, {2, 2}, {4, 4}, {5, 5}, {8, 8}, {100, 100},
			{1000, 1000}, {1000, 1}} {
			b.Run(fmt.Sprintf("%s/conns=%d/active=%d", how, c.conns, c.active), func(b *testing.B) {
				x, y := newCrowd(b, how), newCrowd(b, how)
				joinCrowds(b, x, y, c.conns)
				var served sync.WaitGroup
				served.Go(func() { _ = y.serve() })
				sent := make(map[uint32]time.Time)
				var took []time.Duration
				n := 0
				for num, qp := range x.qps {
					if n++; n > c.active {
						break
					}
					sent[num] = time.Now()
					require.NoError(b, x.ping(qp))
				}
				used := processorTime()
				warm := 3 * c.active // the first operations take longer
				for began := time.Now(); time.Since(began) < crowdTime; {
					if warm > 0 && len(took) >= warm {
						warm, took, used, began = 0, took[:0], processorTime(), time.Now()
					}
					wcs, err := x.completions()
					if err != nil { // require would take much of the time
						b.Fatal(err)
					}
					for i := range wcs {
						num := wcs[i].QPNum
						now := time.Now()
						took = append(took, now.Sub(sent[num]))
						sent[num] = now
						if err := x.answer(num); err != nil {
							b.Fatal(err)
						}
					}
				}
				reportTimes(b, took, c.active, used)
				x.close(b)
				served.Wait()
				y.close(b)
			})
		}
	}
}

// BenchmarkTCPCrowd does the same over bare TCP, with a goroutine per connection.
func BenchmarkTCPCrowd(b *testing.B) {
	for _, c := range []struct{ conns, active int }{{1, 1}, {2, 2}, {4, 4}, {5, 5}, {8, 8}, {100, 100}, {1000, 1000},
		{1000, 1}} {
		b.Run(fmt.Sprintf("conns=%d/active=%d", c.conns, c.active), func(b *testing.B) {
			var stop atomic.Bool
			begin := make(chan struct{})
			var conns []net.Conn
			var mu sync.Mutex
			var took []time.Duration
			var pinging sync.WaitGroup
			for i := range c.conns {
				out, in, err := tcpPair()
				require.NoError(b, err)
				conns = append(conns, out, in)
				go func() {
					buf := make([]byte, 64)
					for {
						if _, err := io.ReadFull(in, buf); err != nil {
							return
						}
						if _, err := in.Write(buf); err != nil {
							return
						}
					}
				}()
				if i >= c.active {
					continue
				}
				pinging.Go(func() {
					<-begin
					var mine []time.Duration
					buf := make([]byte, 64)
					for !stop.Load() {
						start := time.Now()
						if _, err := out.Write(buf); err != nil {
							return
						}
						if _, err := io.ReadFull(out, buf); err != nil {
							return
						}
						mine = append(mine, time.Since(start))
					}
					mu.Lock()
					defer mu.Unlock()
					took = append(took, mine...)
				})
			}
			used := processorTime()
			close(begin)
			time.Sleep(crowdTime)
			stop.Store(true)
			pinging.Wait()
			reportTimes(b, took, c.active, used)
			for _, c := range conns {
				c.Close()
			}
		})
	}
}

// crowdTime is the length of each measurement.
const crowdTime = 500 * time.Millisecond

func reportTimes(b *testing.B, took []time.Duration, active int, used func() time.Duration) {
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(took[len(took)/2]), "p50-us")
	b.ReportMetric(us(took[len(took)/2])/float64(active), "p50/n-us")
	b.ReportMetric(us(took[len(took)*99/100]), "p99-us")
	sum := time.Duration(0)
	for _, d := range took {
		sum += d
	}
	b.ReportMetric(us(sum)/float64(len(took)), "mean-us")
	b.ReportMetric(us(used())/float64(len(took)), "cpu-us")
}

// processorTime returns a function that returns the processor time used by this process since the
// call.
func processorTime() func() time.Duration {
	now := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := now()
	return func() time.Duration { return now() - start }
}
