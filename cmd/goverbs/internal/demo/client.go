// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// ClientCommand is the hidden command that client processes run; it calls RunClient.
const ClientCommand = "demo-client"

// Tuning.
const (
	reportEvery  = 100 // operations between progress reports
	eagerTries   = 4   // attempts to acquire the lock before the first pause
	longestPause = 2 * time.Millisecond
)

// client is one of the processes that contend for the listener's words.
type client struct {
	job     clientJob
	end     *endpoint
	peer    welcome
	mr      *verbs.MR // window words, followed by the guarded words
	sgl     []verbs.SGE
	guarded []verbs.SGE
	free    uint64 // last known value of the free lock word; see takeLock
	report  *json.Encoder
	pending clientReport
	check   *check // of the current step
}

// RunClient is the body of a client process: it reads a job and step names from stdin, runs the
// steps, and returns at the end of stdin.
func RunClient(ctx context.Context, dev *verbs.Device, stdin io.Reader, stdout io.Writer) (err error) {
	in := json.NewDecoder(stdin)
	c := &client{report: json.NewEncoder(stdout)}
	if err := in.Decode(&c.job); err != nil {
		return fmt.Errorf("no job on stdin: %w", err)
	}
	// stdin is read continuously, so that its end is noticed even during a step.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	names := make(chan string)
	go func() {
		defer close(names)
		for {
			var name string
			if in.Decode(&name) != nil {
				cancel(errParentGone)
				return
			}
			select {
			case names <- name:
			case <-ctx.Done():
				return
			}
		}
	}()
	introduction := hello{Role: roleClient, Nonce: uint32(randomWord()), Token: c.job.Token}
	c.end, c.peer, err = dial(ctx, dev, c.job.Address, introduction, driverPatience)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end.close()) }()
	if err := c.allocate(); err != nil {
		return err
	}
	if err := c.done(); err != nil {
		return err
	}
	for name := range names {
		c.check = newCheck(name, c.job.Breaks)
		switch name {
		case "lock":
			err = c.takeLocks(ctx)
		case "counter":
			err = c.count(ctx)
		default:
			err = fmt.Errorf("unknown step %q", name)
		}
		if err == nil {
			err = c.done()
		}
		if err != nil {
			return err
		}
	}
	return c.end.id.Disconnect()
}

func (c *client) allocate() (err error) {
	if c.mr, err = c.end.allocMR(8*window+guardedSize, c.end.sinkAccess()); err != nil {
		return err
	}
	c.sgl = make([]verbs.SGE, window)
	for i := range c.sgl {
		if c.sgl[i], err = c.mr.SGE(8*i, 8); err != nil {
			return err
		}
	}
	guarded, err := c.mr.SGE(8*window, guardedSize)
	c.guarded = []verbs.SGE{guarded}
	return err
}

// did counts an operation; progress is reported in batches.
func (c *client) did() error {
	c.pending.Ops++
	if c.pending.Ops < reportEvery {
		return nil
	}
	err := c.report.Encode(clientReport{Ops: c.pending.Ops})
	c.pending.Ops = 0
	return err
}

// done reports the end of a step.
func (c *client) done() error {
	c.pending.Done = true
	err := c.report.Encode(c.pending)
	c.pending = clientReport{}
	return err
}

func (c *client) word(i int) verbs.Remote { return c.peer.word(i) }
func (c *client) sink(i int) []verbs.SGE  { return c.sgl[i : i+1] }
func (c *client) sunk(i int) uint64       { return binary.NativeEndian.Uint64(c.mr.Bytes()[8*i:]) }

// takeLocks repeatedly acquires the lock and changes the guarded words while holding it.
func (c *client) takeLocks(ctx context.Context) error {
	for range c.job.Ops {
		count, err := c.acquire(ctx)
		if err != nil {
			return err
		}
		if err := c.changeAndRelease(ctx, count); err != nil {
			return err
		}
		c.pending.Taken++
		if err := c.did(); err != nil {
			return err
		}
	}
	return nil
}

// acquire retries until it holds the lock and returns the count in the lock word.
func (c *client) acquire(ctx context.Context) (uint64, error) {
	pause := longestPause / 64
	for try := 1; ; try++ {
		c.pending.Tries++
		if _, err := c.end.do(ctx, c.takeLock()); err != nil {
			return 0, err
		}
		orig := c.sunk(0)
		free := orig&lockHeld == 0
		if free && (c.job.Masked || orig == c.free) {
			return orig & lockCountMask, nil
		}
		if free {
			c.free = orig
			continue
		}
		if try < eagerTries {
			continue
		}
		select {
		case <-time.After(rand.N(pause) + 1):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		pause = min(2*pause, longestPause)
	}
}

// takeLock returns the request that acquires the lock if it is free. With masks the count is
// irrelevant. Without masks it must be known: the request also fails if the count is not that of
// c.free.
func (c *client) takeLock() verbs.SendWR {
	mine := lockHeld | lockOwner(c.job.Client)
	if !c.job.Masked {
		return ext.CmpSwapWR(c.word(wordLock), c.free, c.free|mine, c.sink(0)...)
	}
	return ext.MaskedCmpSwapWR(c.word(wordLock), 0, lockHeld, mine, lockHeld|lockOwnerMask, c.sink(0)...)
}

// releaseLock returns the requests that count this acquisition, given the count before it, and
// release the lock.
func (c *client) releaseLock(count uint64) (add, swap verbs.SendWR) {
	mine := lockHeld | lockOwner(c.job.Client)
	word := c.word(wordLock)
	if !c.job.Masked {
		return ext.FetchAddWR(word, 1, c.sink(0)...), ext.CmpSwapWR(word, mine|count+1, count+1, c.sink(1)...)
	}
	return ext.MaskedFetchAddWR(word, 1, lockCountField, c.sink(0)...),
		ext.MaskedCmpSwapWR(word, mine, lockHeld|lockOwnerMask, 0, lockHeld|lockOwnerMask, c.sink(1)...)
}

// changeAndRelease changes the guarded words, counts the acquisition and releases the lock. The
// Write, the FetchAdd and the CmpSwap are posted together, because atomics execute after earlier
// messages have arrived.
func (c *client) changeAndRelease(ctx context.Context, count uint64) error {
	read := verbs.Read(c.word(wordGuarded), c.guarded...)
	if _, err := c.end.do(ctx, read); err != nil {
		return err
	}
	b := c.mr.Bytes()[8*window:]
	n, sum := decodeGuarded(b)
	// A difference means that the lock did not exclude other clients.
	if c.check.count("the guarded count that was read under the lock", n, count); c.check.err != nil {
		return c.check.err
	}
	n, sum = guardedNext(n, sum)
	binary.BigEndian.PutUint64(b, n)
	binary.BigEndian.PutUint64(b[8:], sum)
	mine := lockHeld | lockOwner(c.job.Client)
	write := verbs.Write(c.word(wordGuarded), c.guarded...)
	add, swap := c.releaseLock(count)
	if _, err := c.end.do(ctx, write, add, swap); err != nil {
		return err
	}
	c.free = count + 1
	c.check.word("the lock word while the lock was held", c.sunk(0), mine|count)
	c.check.word("the lock word at the release", c.sunk(1), mine|count+1)
	return c.check.err
}

// count adds to the counter with many requests in flight.
func (c *client) count(ctx context.Context) error {
	var failed error
	var last uint64
	err := c.end.pipeline(ctx, c.job.Ops, func(k int) verbs.SendWR {
		add, mask := counterAdd(c.job.Client, k), counterBounds(c.job.Masked)
		c.pending.Sum = ext.MaskedFetchAdd(c.pending.Sum, add, mask)
		if !c.job.Masked {
			return ext.FetchAddWR(c.word(wordCounter), add, c.sink(k%window)...)
		}
		return ext.MaskedFetchAddWR(c.word(wordCounter), add, mask, c.sink(k%window)...)
	}, func(k int, _ *verbs.WC) {
		ticket := c.sunk(k%window) & counterTicketMask
		is(c.check, fmt.Sprintf("that ticket %d follows ticket %d", ticket, last), k == 0 || ticket > last, true)
		last = ticket
		c.pending.Tickets += ticket
		c.pending.Squares += ticket * ticket
		if err := c.did(); err != nil && failed == nil {
			failed = err
		}
	})
	return errors.Join(err, failed, c.check.err)
}
