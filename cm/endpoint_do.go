// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// PendingError is the error of a call of an [Endpoint] whose context was done before its requests
// completed. They stay posted, and their memory belongs to the device until they complete. It wraps
// the error of the context.
type PendingError struct {
	e    *Endpoint
	op   string
	call *call
	err  error
}

// Error returns the error of the context, and that the requests are posted.
func (p *PendingError) Error() string { return fmt.Sprintf("%v (the request stays posted)", p.err) }

// Unwrap returns the error of the context.
func (p *PendingError) Unwrap() error { return p.err }

// Wait waits for the requests and returns what the call would have returned. When ctx is done
// before that, it returns another *PendingError. After Close of the endpoint it does not wait. Any
// number of goroutines may wait.
func (p *PendingError) Wait(ctx context.Context) (verbs.WC, error) {
	return p.e.await(ctx, p.op, p.call)
}

// call is a list of requests that a goroutine waits for, or, once a PendingError has it, any number
// of goroutines. Then ready is closed instead of holding a token: the goroutine that takes
// completions looks at ready only after each batch of them, and would miss a token that another one
// takes and puts back.
type call struct {
	e    *Endpoint
	f    func(*verbs.WC) // complete
	left atomic.Int32    // requests that have not completed
	wc   verbs.WC        // of the last request, or of the first that failed
	buf  int             // the buffer of Send that it uses, -1 = none
	// its first completion is that of the Write of the credit word that went along
	// (endpoint_credit.go)
	along bool
	ready chan struct{} // holds a token, or is closed, when left is 0
	kept  bool          // e.mu: a PendingError has it, and it is not used again
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

// free gives a call back that has completed, unless a PendingError has it.
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

// took notes that n requests have completed, or were not posted. It reports whether they were the
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

// keep lets a PendingError have the call. The caller is the only goroutine that has waited for it.
func (c *call) keep() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.kept {
		return
	}
	c.kept = true
	select {
	case <-c.ready: // it completed just now
		close(c.ready)
	default:
	}
}

// Do posts send requests and waits until all of them have completed. It returns the completion of
// the last one, or that of the first that failed, with an error that wraps its status and the
// reason for the end of the connection. A signalled completion is asked for of each. The requests
// of one call stay together in the queue; if it cannot hold as many, the error Is verbs.ErrLimit.
// If one of them is refused when it is posted, those before it are executed, and the error says
// what is wrong.
//
// A message among them waits until the peer has a receive for it, as [Endpoint.Send] does, with
// everything behind it in the list.
//
// On iWARP the completion of a Send or Write does not say that it has arrived: see
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

// takeTurn waits until it is this goroutine's turn to post, and with a message until the peer has
// room for one. releaseTurn gives the turn back.
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

// takeSendTurn waits for the turn to post.
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

// stopped is the reason why nothing is posted any more, if the program has ended that.
func (e *Endpoint) stopped() error {
	switch {
	case e.node.Closed():
		return verbs.ErrClosed
	case e.shut.Load():
		return fmt.Errorf("%w: the endpoint has been shut down", verbs.ErrClosed)
	}
	return nil
}

// run posts requests and waits for them. The caller has the turn, which run gives back, and gives
// it a buffer, or -1.
func (e *Endpoint) run(ctx context.Context, op string, buf int, message bool, wrs []verbs.SendWR) (verbs.WC, error) {
	c, n, err := e.post(ctx, buf, wrs)
	e.releaseTurn(message)
	if n == 0 {
		return verbs.WC{}, e.opError(op, err)
	}
	wc, failed := e.await(ctx, op, c)
	if err != nil { // those behind the first n were refused
		return wc, e.opError(op, and(err, failed))
	}
	return wc, failed
}

// post waits for room and posts. Room for what is not posted is given back before another goroutine
// can wait for it, because only completions wake a goroutine that waits.
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

// postPart posts those requests, from the first, for which the peer has room: all, or those before
// the next message. For the first there is room, or postPart waits for it.
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
