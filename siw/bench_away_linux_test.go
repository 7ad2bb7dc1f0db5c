// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// BenchmarkReadAway is the time of an RDMA Read of 64 bytes from a program that is away, again and again: it waits, or
// polls, until a message comes, answers it, and computes for a while, or watches memory without polling.
func BenchmarkReadAway(b *testing.B) {
	compute := func(d time.Duration) {
		for began := time.Now(); time.Since(began) < d; {
		}
	}
	for _, c := range []struct {
		name string
		mode string
		away time.Duration
	}{{"never waits", "", 0}, {"computes", "compute", 500 * time.Microsecond}, {"waits", "wait", 500 * time.Microsecond}, {"waits briefly", "wait", 200 * time.Microsecond},
		{"polls", "poll", 500 * time.Microsecond}, {"polls briefly", "poll", 200 * time.Microsecond}} {
		b.Run(c.name, func(b *testing.B) {
			a, p := connectEnds(b, siw.Config{})
			var stop atomic.Bool
			var program sync.WaitGroup
			if c.mode != "" {
				program.Go(func() { // the other side's, which sends itself nothing: its messages come from below
					for {
						if c.mode == "compute" {
							if stop.Load() {
								return
							}
							compute(c.away)
							continue
						}
						var err error
						if c.mode == "wait" {
							err = p.receive()
						} else {
							var n int
							began := time.Now()
							for n == 0 && err == nil && time.Since(began) < 300*time.Microsecond {
								n, err = p.rcq.Poll(p.wcs[:1])
								runtime.Gosched()
							}
							if n > 0 {
								err = errors.Join(err, p.wcs[0].Err())
								_, _ = p.qp.PostRecv(p.recv[:])
							}
						}
						if err != nil {
							return
						}
						if c.mode == "wait" {
							if _, err = p.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}}); err != nil {
								return
							}
						}
						compute(c.away)
					}
				})
			}
			if c.mode == "wait" {
				program.Go(func() { // this side's, which keeps the other one busy
					for !stop.Load() {
						if _, err := a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}}); err != nil {
							return
						}
						if a.receive() != nil {
							return
						}
					}
				})
			}
			var took []time.Duration
			used := processorTime()
			var wr [1]verbs.SendWR
			for began := time.Now(); time.Since(began) < crowdTime; {
				start := time.Now()
				wr[0] = verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{{Addr: a.mr.Addr(), Length: 64, LKey: a.mr.LKey()}},
					RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}
				_, err := a.qp.PostSend(wr[:])
				require.NoError(b, err)
				_, err = a.scq.Wait(context.Background(), a.wcs[:1])
				require.NoError(b, err)
				took = append(took, time.Since(start))
			}
			stop.Store(true)
			reportTimes(b, took, 1, used)
			require.NoError(b, a.id.Close())
			require.NoError(b, p.id.Close())
			program.Wait()
		})
	}
}
