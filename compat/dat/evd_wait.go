// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"time"
)

// Wait waits until the EVD has threshold events, then removes and returns the oldest
// (dat_evd_wait). more is the number of events left. Wait returns immediately if there are already
// enough events; otherwise only an event that wakes a waiter ends the wait (see the package
// comment). timeout is the maximum time to wait: 0 polls, Infinite waits forever.
//
// The error is [TimeoutExpired] after that time, with more = the number of events;
// [InterruptedCall], which also Is ctx.Err(), when ctx is done; [Abort] when the EVD is freed;
// [InvalidParameter] for a threshold below 1 or above the length of the queue; and [InvalidState]
// if another goroutine waits, if the EVD is unwaitable, if completions were lost because it was
// full, or for a threshold above 1 on an EVD whose receives are solicited.
func (e *EVD) Wait(ctx context.Context, timeout time.Duration, threshold int) (ev Event, more int, err error) {
	const call = "EVD.Wait"
	if err := e.enter(call); err != nil {
		return Event{}, 0, err
	}
	defer e.node.Exit()
	if timeout < 0 && timeout != Infinite {
		return Event{}, 0, argument(call, InvalidArg2, "a time-out of %v", timeout)
	}
	if threshold < 1 || threshold > e.qlen {
		return Event{}, 0, argument(call, InvalidArg3, "a threshold of %d, of a queue of %d", threshold, e.qlen)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.waiter:
		return Event{}, 0, fault(call, InvalidState, InvalidStateEVDWaiter, nil)
	case e.unwaitable:
		return Event{}, 0, fault(call, InvalidState, InvalidStateEVDUnwaitable, nil)
	case threshold > 1 && e.solicited > 0:
		return Event{}, 0, fault(call, InvalidState, InvalidStateEVDConfigSolicited, nil)
	}
	e.waiter = true
	defer func() { e.waiter = false }()
	e.collect()
	if e.events.len() >= threshold {
		return e.take(), e.events.len(), nil
	}
	if timeout == 0 {
		return Event{}, e.events.len(), fault(call, TimeoutExpired, NoSubtype, e.broken)
	}
	limit := ctx
	if timeout != Infinite {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for loud := e.loud; ; {
		switch {
		case e.freed:
			return Event{}, 0, fault(call, Abort, NoSubtype, nil)
		case e.unwaitable:
			return Event{}, e.events.len(), fault(call, InvalidState, InvalidStateEVDUnwaitable, nil)
		case e.events.len() >= threshold && e.loud != loud:
			return e.take(), e.events.len(), nil
		case ctx.Err() != nil:
			return Event{}, e.events.len(), fault(call, InterruptedCall, NoSubtype, ctx.Err())
		case limit.Err() != nil:
			return Event{}, e.events.len(), fault(call, TimeoutExpired, NoSubtype, nil)
		case e.broken != nil:
			return Event{}, e.events.len(), fault(call, InvalidState, NoSubtype, e.broken)
		}
		e.sleep(limit)
		e.collect()
	}
}

// sleep waits for a completion, a kick, or ctx. The caller holds mu.
func (e *EVD) sleep(ctx context.Context) {
	nap, cancel := context.WithCancel(ctx)
	e.interrupt = cancel
	if e.cq == nil {
		e.mu.Unlock()
		<-nap.Done()
		e.mu.Lock()
	} else {
		wait := e.cq.Wait
		if e.solicited > 0 {
			wait = e.cq.WaitSolicited
		}
		e.asleep = true
		e.mu.Unlock()
		n, err := wait(nap, e.batch[:])
		e.mu.Lock()
		e.asleep = false
		e.completed(e.batch[:n])
		if n == 0 && err != nil && nap.Err() == nil {
			e.lost(err)
		}
		e.awake.Broadcast()
		for e.settling > 0 {
			e.awake.Wait()
		}
	}
	e.interrupt = nil
	cancel()
}
