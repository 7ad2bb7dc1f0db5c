// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// PendingError is the error of a call of an [Endpoint] whose context was done before its requests
// completed. The requests stay posted, and their memory belongs to the device until they complete.
// It wraps the error of the context.
type PendingError struct {
	e    *Endpoint
	op   string
	call *call
	err  error
}

// Error returns the text of the context's error, and says that the request stays posted.
func (p *PendingError) Error() string { return fmt.Sprintf("%v (the request stays posted)", p.err) }

// Unwrap returns the error of the context.
func (p *PendingError) Unwrap() error { return p.err }

// Wait waits for the requests and returns what the call would have returned. If ctx is done first,
// it returns another *PendingError. After the endpoint is closed it does not wait. Any number of
// goroutines may call Wait.
func (p *PendingError) Wait(ctx context.Context) (verbs.WC, error) {
	return p.e.await(ctx, p.op, p.call)
}

// call is a list of requests that one goroutine waits for or, once a PendingError holds it, any
// number of goroutines. In that case ready is closed instead of holding a token: the goroutine that
// polls the CQ checks ready only after each batch of completions, and would miss a token that
// another goroutine removes and puts back.
type call struct {
	e    *Endpoint
	f    func(*verbs.WC) // the method complete
	left atomic.Int32    // outstanding requests
	wc   verbs.WC        // of the last request, or of the first failed one
	buf  int             // the buffer of Send in use, -1 = none
	// its first completion belongs to the Write of the credit word sent along with it
	// (endpoint_credit.go)
	along bool
	ready chan struct{} // holds a token, or is closed, once left is 0
	kept  bool          // a PendingError holds it, so it is not reused; guarded by e.mu
}

// newCall returns a call for n requests.
func (e *Endpoint) newCall(n, buf int) *call {
	e.mu.Lock()
	defer e.mu.Unlock()
	var c *call
	if last := len(e.calls) - 1; last >= 0 {
		c, e.calls = e.calls[last], e.calls[:last]
	} else {
		c = &call{e: e, ready: make(chan struct{}, 1)}
		c.f = c.complete
	}
	c.left.Store(int32(n))
	c.wc, c.buf = verbs.WC{}, buf
	return c
}

// free returns a completed call to the pool, unless a PendingError holds it.
func (c *call) free() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if !c.kept {
		c.e.calls = append(c.e.calls, c)
	}
}

// complete is called by the dispatcher.
func (c *call) complete(wc *verbs.WC) {
	if c.wc.Status == verbs.WCSuccess {
		c.wc = *wc
	}
	if c.along {
		c.along = false
		c.e.told(wc.Status)
	} else {
		if wc.Status == verbs.WCSuccess {
			c.e.noteSent(wc.Opcode)
		}
		c.e.freePlace()
	}
	c.took(1)
	c.e.finished(1)
}

// took records that n requests completed, or were not posted, and reports whether they were the
// last.
func (c *call) took(n int32) bool {
	if c.left.Add(-n) > 0 {
		return false
	}
	if c.buf >= 0 {
		c.e.sendBufs.put(c.buf)
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.kept {
		close(c.ready)
	} else {
		c.ready <- struct{}{}
	}
	return true
}

// keep hands the call to a PendingError. So far the caller is the only goroutine that has waited
// for it.
func (c *call) keep() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.kept {
		return
	}
	c.kept = true
	select {
	case <-c.ready: // it has just completed
		close(c.ready)
	default:
	}
}

// Do posts send requests, all signaled, and waits until they have completed. It returns the
// completion of the last request. If one fails, it returns the completion of the first failed one,
// with an error that wraps its status and the reason for the end of the connection. The requests of
// one call stay together in the queue; if the queue cannot hold them all, the error Is
// verbs.ErrLimit. If one is refused when it is posted, those before it are executed, and the error
// says why it was refused.
//
// A message in the list waits until the peer has a receive for it, as in [Endpoint.Send], and so
// does everything after it in the list.
//
// On iWARP the completion of a Send or Write does not mean that it has arrived: see
// [Endpoint.Shutdown].
func (e *Endpoint) Do(ctx context.Context, wrs ...verbs.SendWR) (verbs.WC, error) {
	const op = "Do"
	if !e.node.Enter() {
		return verbs.WC{}, e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	if len(wrs) == 0 {
		return verbs.WC{}, e.opError(op, fmt.Errorf("%w: no request", verbs.ErrInvalid))
	}
	message := hasMessage(wrs)
	if err := e.takeTurn(ctx, message); err != nil {
		return verbs.WC{}, e.opError(op, err)
	}
	return e.run(ctx, op, -1, message, wrs)
}

// takeTurn waits for this goroutine's turn to post and, for a message, until the peer has a receive
// for one. releaseTurn releases the turn.
func (e *Endpoint) takeTurn(ctx context.Context, message bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if message {
		select {
		case e.messageTurn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.awaitCredit(ctx); err != nil {
			<-e.messageTurn
			return err
		}
	}
	err := e.takeSendTurn(ctx)
	if err == nil {
		if err = e.stopped(); err != nil {
			<-e.sendTurn
		}
	}
	if err != nil && message {
		<-e.messageTurn
	}
	return err
}

// takeSendTurn waits for the send turn.
func (e *Endpoint) takeSendTurn(ctx context.Context) error {
	select {
	case e.sendTurn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Endpoint) releaseTurn(message bool) {
	<-e.sendTurn
	if message {
		<-e.messageTurn
	}
}

// stopped returns the reason why the endpoint posts nothing, if the program closed it or shut it
// down.
func (e *Endpoint) stopped() error {
	switch {
	case e.node.Closed():
		return verbs.ErrClosed
	case e.shut.Load():
		return fmt.Errorf("%w: the endpoint has been shut down", verbs.ErrClosed)
	}
	return nil
}

// run posts requests and waits for them. The caller holds the turn, which run releases, and passes
// a buffer, or -1.
func (e *Endpoint) run(ctx context.Context, op string, buf int, message bool, wrs []verbs.SendWR) (verbs.WC, error) {
	c, n, err := e.post(ctx, buf, wrs)
	e.releaseTurn(message)
	if n == 0 {
		return verbs.WC{}, e.opError(op, err)
	}
	wc, failed := e.await(ctx, op, c)
	if err != nil { // those after the first n were refused
		return wc, e.opError(op, and(err, failed))
	}
	return wc, failed
}

// post waits for room and posts. It releases the slots of what it did not post before another
// goroutine can wait for them, because only completions wake a waiting goroutine.
func (e *Endpoint) post(ctx context.Context, buf int, wrs []verbs.SendWR) (c *call, n int, err error) {
	c = e.newCall(len(wrs), buf)
	if len(wrs) > cap(e.room) {
		err = &verbs.LimitError{Name: "max_send_wr", Limit: uint64(cap(e.room)), Value: uint64(len(wrs))}
	}
	for err == nil && n < len(wrs) {
		var posted int
		posted, err = e.postPart(ctx, c, wrs[n:])
		n += posted
	}
	if refused := len(wrs) - n; refused > 0 && c.took(int32(refused)) && n == 0 {
		<-c.ready
		c.free()
	}
	return c, n, err
}

// postPart posts the requests, from the first, that the peer has room for: all of them, or those
// before the next message. If there is no room for the first, postPart waits for it.
func (e *Endpoint) postPart(ctx context.Context, c *call, wrs []verbs.SendWR) (n int, err error) {
	n, messages := e.affordable(wrs)
	if n == 0 {
		if err := e.awaitCredit(ctx); err != nil {
			return 0, err
		}
		n, messages = e.affordable(wrs)
	}
	for got := range n {
		if err := e.wait(ctx, e.room); err != nil {
			e.giveBack(got)
			return 0, err
		}
	}
	list := wrs[:n]
	along := c.buf >= 0 && e.tellAlong(c)
	if along {
		e.credit.pair = [2]verbs.SendWR{e.credit.grant[0], wrs[0]}
		list = e.credit.pair[:]
	}
	e.out.Add(int64(len(list)))
	posted, err := e.d.PostSend(e.qp, list, c.f)
	refused := len(list) - posted
	if along {
		if e.credit.pair[1] = (verbs.SendWR{}); posted == 0 {
			c.along = false
			c.left.Add(-1)
			e.cancelTelling()
		} else {
			posted--
		}
	}
	if refused > 0 {
		e.giveBack(refused)
		e.finished(refused)
		_, messages = e.affordable(wrs[:posted])
	}
	if messages > 0 {
		e.credit.used += messages
	}
	return posted, err
}

// await waits until a call has completed.
func (e *Endpoint) await(ctx context.Context, op string, c *call) (verbs.WC, error) {
	if err := e.wait(ctx, c.ready); err != nil {
		if ctx.Err() != nil {
			c.keep()
			return verbs.WC{}, e.opError(op, &PendingError{e: e, op: op, call: c, err: ctx.Err()})
		}
		return verbs.WC{}, e.opError(op, err)
	}
	wc := c.wc
	c.free()
	if wc.Status != verbs.WCSuccess {
		return wc, e.opError(op, e.reason(wc.Status))
	}
	return wc, nil
}
