// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// pollTime is how long programPolls polls at a time.
const pollTime = 300 * time.Microsecond

// compute computes for a while.
func computeFor(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// runProgram is the program of workReads. It returns when the other side has gone.
func (c *siwConn) runProgram(j *job) error {
	for {
		var err error
		select {
		case <-c.id.Done():
			return c.id.Close()
		default:
		}
		switch j.program {
		case programWaits:
			if err = c.receive(); err == nil {
				_, err = c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
			}
		case programPolls:
			for began := time.Now(); err == nil && time.Since(began) < pollTime; runtime.Gosched() {
				_, err = c.rcq.Poll(c.wcs[:1])
			}
		}
		if err != nil && c.id.Err() == nil && !errors.Is(err, verbs.WCWRFlushErr) {
			return err
		}
		computeFor(j.pause)
	}
}

// readTimes measures Reads of 64 bytes.
func (c *siwConn) readTimes(j *job) (figures, error) {
	var over atomic.Bool
	var talk sync.WaitGroup
	if j.program == programWaits { // there is always a message for the other program
		talk.Go(func() {
			for !over.Load() {
				if _, err := c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}}); err != nil || c.receive() != nil {
					return
				}
			}
		})
	}
	// The completions of Reads come to a CQ of their own.
	var took []time.Duration
	var wcs [1]verbs.WC
	warm := j.seconds / 5
	for began := time.Now(); time.Since(began) < warm+j.seconds; {
		start := time.Now()
		wr := verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{{Addr: c.mr.Addr(), Length: uint32(j.size), LKey: c.mr.LKey()}},
			RemoteAddr: c.addr, RKey: c.key}
		if _, err := c.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			return figures{}, err
		}
		if _, err := c.scq.Wait(context.Background(), wcs[:]); err != nil {
			return figures{}, err
		}
		if err := wcs[0].Err(); err != nil {
			return figures{}, err
		}
		if now := time.Now(); now.Sub(began) > warm {
			took = append(took, now.Sub(start))
		}
	}
	over.Store(true)
	talk.Wait()
	slices.Sort(took)
	return figures{times: took}, nil
}
