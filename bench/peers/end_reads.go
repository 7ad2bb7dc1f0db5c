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

// pollTime is how long programPolls polls at a stretch.
const pollTime = 300 * time.Microsecond

// computeFor keeps the processor busy for d.
func computeFor(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// runProgram is the program of workReads. It returns when the other side is gone.
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
			if _, err = c.wait(c.rcq, 1); err == nil {
				err = c.reply()
			}
		case programAnswers:
			var n int
			if n, err = c.rcq.Poll(c.wcs[:1]); err == nil && n > 0 {
				if err = c.wcs[0].Err(); err == nil {
					err = c.reply()
				}
			}
		case programPolls:
			for began := time.Now(); err == nil && time.Since(began) < pollTime; runtime.Gosched() {
				_, err = c.rcq.Poll(c.wcs[:1])
			}
		}
		switch {
		case errors.Is(err, verbs.WCWRFlushErr): // the other side is done, and nothing more completes here
			return c.id.Close()
		case err != nil && c.id.Err() == nil:
			return err
		}
		computeFor(j.pause)
	}
}

// reply answers a message and posts a receive for another.
func (c *siwConn) reply() error {
	if _, err := c.qp.PostRecv(c.recv[:]); err != nil {
		return err
	}
	_, err := c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
	return err
}

// readTimes measures Reads of 64 bytes.
func (c *siwConn) readTimes(j *job) (figures, error) {
	var over atomic.Bool
	var talk sync.WaitGroup
	if j.program == programWaits || j.program == programAnswers { // these programs always have a message to answer
		talk.Go(func() {
			for !over.Load() {
				if _, err := c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}}); err != nil || c.receive() != nil {
					return
				}
			}
		})
	}
	// The completions of Reads go to a separate CQ.
	var took []time.Duration
	var wcs [1]verbs.WC
	warm := j.seconds / 5
	for began := time.Now(); time.Since(began) < warm+j.seconds; {
		start := time.Now()
		wr := verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{{Addr: c.mr.Addr(), Length: uint32(j.size), LKey: c.mr.LKey()}}, RemoteAddr: c.addr,
			RKey: c.key}
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
