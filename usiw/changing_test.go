// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestChangingMemory: a program may write to memory that a request in progress sends, or that the
// peer is reading. The other side receives every aligned word as it was before or after a store,
// and the connection continues: the bytes sent are those that the CRC covers.
func TestChangingMemory(t *testing.T) {
	for name, cfg := range map[string]usiw.Config{"large segments": {CRC: usiw.On},
		"small segments": {CRC: usiw.On, MTU: 1460}, "guarded": {CRC: usiw.On, GuardMemory: true}} {
		t.Run(name, func(t *testing.T) {
			const most, hot = 4 << 20, 16 << 10
			requests, long := 100_000/3, 100
			if race.Enabled || testing.Short() {
				requests, long = 3_000, 20
			}
			a, p := connectEnds(t, cfg)
			region := func(e *end) *verbs.MR {
				mr, err := e.qp.PD().AllocMR(most,
					verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
				require.NoError(t, err)
				return mr
			}
			near, far := region(a), region(p)
			sources := []*verbs.MR{near, far}
			sinks := []*verbs.MR{region(p), region(a)}

			// All bytes of a word are equal, so that half a word, or a byte of another word, is
			// detected.
			rest := runtime.Gosched
			// with one processor, arrived data are received only when no other goroutine is ready
			// to run
			if runtime.GOMAXPROCS(0) == 1 {
				rest = func() { time.Sleep(time.Microsecond) }
			}
			var over atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				words := make([][]*atomic.Uint64, len(sources))
				for i, mr := range sources {
					for at := range most / 8 {
						w, err := mr.Word(8 * at)
						if err != nil {
							panic(err)
						}
						words[i] = append(words[i], w)
					}
				}
				for v := uint64(1); !over.Load(); v++ {
					n := hot / 8
					if v%256 == 0 {
						n = most / 8
					}
					for at := range n {
						for i := range words {
							words[i][at].Store(v % 256 * 0x0101010101010101)
						}
						if at%2048 == 0 {
							rest()
						}
					}
				}
			}()
			defer func() { over.Store(true); <-done }()

			rng := rand.New(rand.NewPCG(7306, uint64(cfg.MTU)))
			logUniform := func(most int) int { return 1 + rng.IntN(1<<(1+rng.IntN(bits.Len(uint(most))-1)))%most }
			for i := range requests {
				size, room := logUniform(hot), hot
				if i%(requests/long) == 0 {
					size, room = logUniform(most), most
				}
				from, to := rng.IntN(room-size+1), rng.IntN(most-size+1)
				if i%4 != 0 {
					from &^= 7 // a request that begins within a word may split words across two segments
				}
				write := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: sinks[0].Addr() + uint64(to),
					RKey: sinks[0].RKey()}
				read := verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
					RemoteAddr: far.Addr() + uint64(from), RKey: far.RKey()}
				for wr, at := range map[*verbs.SendWR]struct {
					mr  *verbs.MR
					off int
				}{&write: {near, from}, &read: {sinks[1], to}} {
					sge, err := at.mr.SGE(at.off, size)
					require.NoError(t, err)
					wr.SGL = []verbs.SGE{sge}
				}
				_, err := a.qp.PostSend([]verbs.SendWR{write, read})
				require.NoError(t, err)
				_, err = a.wait(a.scq, 1) // the response to the Read shows that the Write is in place
				require.NoError(t, err, "request %d, %d bytes", i, size)
				for _, sink := range sinks {
					for got := sink.Bytes()[to : to+size]; from%8 == 0 && len(got) >= 8; got = got[8:] {
						if bytes.Count(got[:8], got[:1]) != 8 {
							require.Failf(t, "torn", "request %d, %d bytes from offset %d to %d: % x", i, size, from,
								to, got[:8])
						}
					}
				}
			}
		})
	}
}
