// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Dispatcher serves one CQ for any number of QPs. Each request is posted together with a function
// that receives its completion.
//
//	d, err := verbs.NewDispatcher(cq, verbs.DispatcherConfig{})
//	_, err = d.PostSend(qp, []verbs.SendWR{verbs.Read(remote, sge)}, func(wc *verbs.WC) {
//		... wc.Err() says whether the data are there ...
//	})
//	err = d.Run(ctx)
//
// # Functions
//
// [Dispatcher.Run] and [Dispatcher.Wait] poll the CQ and call the functions, one at a time, in the
// order in which the requests completed. A function is called exactly once for each request posted
// with it, including requests that fail or are flushed. [WC.ID] is the ID that the program gave the
// request. The WC is valid until the function returns.
//
// A function may post further requests. It must not wait, neither in Run or Wait nor for anything
// that depends on another completion of the CQ ([Dispatcher.Inside]): no other function of the
// dispatcher runs until it returns.
//
// # Room
//
// The dispatcher has a table with one entry for each completion that the CQ can hold ([CQ.CQE] at
// the time of NewDispatcher). When the table is full, posting fails with an error that Is
// [ErrQueueFull], so the CQ cannot overflow. If several parts of a program share a dispatcher, each
// of them reserves what its queues can hold ([Dispatcher.Reserve]); then none of them finds the
// table full.
//
// # Rules
//
// All requests that complete into the CQ should be posted through the dispatcher, because it polls
// every completion. DispatcherConfig.Other receives the completions of other requests. The
// dispatcher posts every request as signalled.
//
// Before closing a QP, drain it ([QP.Drain]) and let Run or Wait call the functions of its
// requests: destroying a QP can discard completions, and their table entries are then lost.
// Receives in a closed SRQ never complete. The dispatcher itself need not be closed. All methods
// may be called concurrently; neither posting nor dispatching allocates.
type Dispatcher struct {
	cq    *CQ
	other func(*WC)

	turn chan struct{} // holds a token unless a goroutine is polling; guards the fields below
	wcs  []WC
	left []WC // the part of wcs whose functions have not been called

	calls atomic.Uint64 // odd while functions are running

	mu       sync.Mutex // guards the fields below
	entries  []entry
	free     []uint32 // indexes of unused entries
	reserved int
	sends    [][]SendWR // spare lists, for PostSend to replace IDs in
	recvs    [][]RecvWR
}

// entry tracks one request. The wr_id consists of its index and its generation, so a stale
// completion never matches a later request.
type entry struct {
	f   func(*WC) // nil = unused
	id  uint64    // the program's ID
	gen uint32
}

// DispatcherConfig configures a [Dispatcher].
type DispatcherConfig struct {
	// Other receives the completions of requests that were not posted through the dispatcher. If it
	// is nil, such a completion ends Run and Wait with an error that Is ErrInvalid.
	Other func(*WC)
}

// dispatchBatch is the largest number of completions polled at once.
const dispatchBatch = 64

// NewDispatcher returns a dispatcher for a CQ with a private channel (otherwise the error Is
// [ErrSharedChannel]). The caller still owns the CQ, but nothing else should poll it.
func NewDispatcher(cq *CQ, cfg DispatcherConfig) (*Dispatcher, error) {
	if cq == nil {
		return nil, opError("NewDispatcher", "", invalid("no CQ"))
	}
	switch {
	case cq.node.Closed():
		return nil, opError("NewDispatcher", cq.ctx.dev.Name(), ErrClosed)
	case !cq.owned:
		return nil, opError("NewDispatcher", cq.ctx.dev.Name(), ErrSharedChannel)
	}
	n := cq.CQE()
	d := &Dispatcher{cq: cq, other: cfg.Other, turn: make(chan struct{}, 1), wcs: make([]WC, min(n, dispatchBatch)),
		entries: make([]entry, n), free: make([]uint32, n)}
	gen := rand.Uint32() // unlikely to match the IDs of other requests, which are usually small
	for i := range d.entries {
		d.entries[i].gen = gen
		d.free[i] = uint32(n - 1 - i)
	}
	d.turn <- struct{}{}
	return d, nil
}

// CQ returns the dispatcher's CQ.
func (d *Dispatcher) CQ() *CQ { return d.cq }

// Outstanding returns the number of requests whose functions are still to be called.
func (d *Dispatcher) Outstanding() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries) - len(d.free)
}

// Reserve reserves n table entries for a user of the dispatcher that will have at most n requests
// outstanding. It is bookkeeping only: as long as every user reserves what it needs, no post finds
// the table full. The error Is [ErrLimit] if fewer than n entries are unreserved. Release returns
// the entries.
func (d *Dispatcher) Reserve(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n < 0 {
		return d.opError("Dispatcher.Reserve", invalid("%d entries", n))
	}
	if n > len(d.entries)-d.reserved {
		return d.opError("Dispatcher.Reserve",
			&LimitError{Name: "cqe", Limit: uint64(len(d.entries)), Value: uint64(d.reserved) + uint64(n)})
	}
	d.reserved += n
	return nil
}

// Release returns n reserved entries.
func (d *Dispatcher) Release(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= n
}

// PostSend posts send requests to qp, as [QP.PostSend] does, and arranges for f to be called once
// for each. The QP's SendCQ must be the dispatcher's CQ.
func (d *Dispatcher) PostSend(qp *QP, wrs []SendWR, f func(*WC)) (n int, err error) {
	if err := d.postable(qp != nil && qp.sendCQ == d.cq, f); err != nil {
		return 0, d.opError("Dispatcher.PostSend", err)
	}
	d.mu.Lock()
	if len(wrs) > len(d.free) {
		d.mu.Unlock()
		return 0, d.opError("Dispatcher.PostSend", d.full(len(wrs)))
	}
	list := append(takeList(&d.sends), wrs...)
	for i := range list {
		list[i].ID = d.enter(list[i].ID, f)
		list[i].Flags |= SendSignaled
	}
	d.mu.Unlock()
	if n, err = qp.PostSend(list); err != nil {
		err = d.opError("Dispatcher.PostSend", err)
	}
	d.mu.Lock()
	for i := n; i < len(list); i++ {
		d.leave(&d.entries[uint32(list[i].ID)], uint32(list[i].ID))
	}
	clear(list) // drop references to the program's memory
	d.sends = append(d.sends, list[:0])
	d.mu.Unlock()
	return n, err
}

// PostRecv posts receives to qp, as [QP.PostRecv] does, and arranges for f to be called once for
// each. The QP's RecvCQ must be the dispatcher's CQ.
func (d *Dispatcher) PostRecv(qp *QP, wrs []RecvWR, f func(*WC)) (n int, err error) {
	if err := d.postable(qp != nil && qp.recvCQ == d.cq, f); err != nil {
		return 0, d.opError("Dispatcher.PostRecv", err)
	}
	return d.postRecv("Dispatcher.PostRecv", wrs, f, qp, nil)
}

// PostSRQRecv posts receives to srq, as [SRQ.PostRecv] does, and arranges for f to be called once
// for each. All QPs of the SRQ must have the dispatcher's CQ as RecvCQ. [WC.QPNum] identifies the
// QP that received the message.
func (d *Dispatcher) PostSRQRecv(srq *SRQ, wrs []RecvWR, f func(*WC)) (n int, err error) {
	if err := d.postable(srq != nil && srq.pd.ctx == d.cq.ctx, f); err != nil {
		return 0, d.opError("Dispatcher.PostSRQRecv", err)
	}
	return d.postRecv("Dispatcher.PostSRQRecv", wrs, f, nil, srq)
}

func (d *Dispatcher) postRecv(op string, wrs []RecvWR, f func(*WC), qp *QP, srq *SRQ) (n int, err error) {
	d.mu.Lock()
	if len(wrs) > len(d.free) {
		d.mu.Unlock()
		return 0, d.opError(op, d.full(len(wrs)))
	}
	list := append(takeList(&d.recvs), wrs...)
	for i := range list {
		list[i].ID = d.enter(list[i].ID, f)
	}
	d.mu.Unlock()
	if srq != nil {
		n, err = srq.PostRecv(list)
	} else {
		n, err = qp.PostRecv(list)
	}
	if err != nil {
		err = d.opError(op, err)
	}
	d.mu.Lock()
	for i := n; i < len(list); i++ {
		d.leave(&d.entries[uint32(list[i].ID)], uint32(list[i].ID))
	}
	clear(list)
	d.recvs = append(d.recvs, list[:0])
	d.mu.Unlock()
	return n, err
}

// postable checks the arguments of a post.
func (d *Dispatcher) postable(ours bool, f func(*WC)) error {
	switch {
	case f == nil:
		return invalid("no function")
	case !ours:
		return fmt.Errorf("%w: the queue does not complete into the dispatcher's CQ", ErrForeign)
	}
	return nil
}

func (d *Dispatcher) full(n int) error {
	return fmt.Errorf("%w: the dispatcher has no room for %d more completions, its CQ holds %d", ErrQueueFull, n,
		len(d.entries))
}

func (d *Dispatcher) opError(op string, err error) error {
	return opError(op, d.cq.ctx.dev.Name(), err)
}

// takeList returns an empty list, a spare one if possible. The caller holds d.mu.
func takeList[T any](lists *[][]T) []T {
	if n := len(*lists); n > 0 {
		list := (*lists)[n-1]
		*lists = (*lists)[:n-1]
		return list
	}
	return nil
}

// enter adds a request to the table and returns its wr_id. The caller holds d.mu and has checked
// that there is room.
func (d *Dispatcher) enter(id uint64, f func(*WC)) uint64 {
	n := len(d.free) - 1
	i := d.free[n]
	d.free = d.free[:n]
	e := &d.entries[i]
	e.f, e.id = f, id
	return uint64(e.gen)<<32 | uint64(i)
}

// leave removes a request from the table. The caller holds d.mu.
func (d *Dispatcher) leave(e *entry, i uint32) {
	e.f = nil
	e.gen++
	d.free = append(d.free, i)
}

// find removes the request of a completion from the table. It reports false if there is none.
func (d *Dispatcher) find(wc *WC) (f func(*WC), ok bool) {
	i := uint32(wc.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if uint64(i) >= uint64(len(d.entries)) {
		return nil, false
	}
	e := &d.entries[i]
	if e.f == nil || e.gen != uint32(wc.ID>>32) {
		return nil, false
	}
	f, wc.posted, wc.ID = e.f, wc.ID^e.id, e.id
	d.leave(e, i)
	return f, true
}

// Run calls the functions of requests as they complete, until ctx is done; the error then Is
// ctx.Err(). Outstanding requests stay outstanding, and a later Run or Wait calls their functions.
// Run also returns when the CQ is closed, with an error that Is [ErrClosed], and when it overflows
// ([ErrCQOverflow]).
//
// If several goroutines are in Run or Wait, one of them polls and the others stand by.
func (d *Dispatcher) Run(ctx context.Context) error { return d.wait(ctx, "Dispatcher.Run", nil) }

// Wait waits until it receives a value from ready or ready is closed. Meanwhile it calls functions
// as Run does, unless another goroutine already does. A program with few goroutines therefore needs
// no Run: each of them waits for the signal that the function of its request sends.
//
// A function of the dispatcher should send to ready, and without blocking: the channel needs a
// buffer. The goroutine that polls checks ready only after each batch of completions, so it notices
// a send from elsewhere only then.
func (d *Dispatcher) Wait(ctx context.Context, ready <-chan struct{}) error {
	return d.wait(ctx, "Dispatcher.Wait", ready)
}

func (d *Dispatcher) wait(ctx context.Context, op string, ready <-chan struct{}) error {
	for {
		select {
		case <-ready:
			return nil
		default:
		}
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return d.opError(op, ctx.Err())
		case <-d.turn:
			if done, err := d.serve(ctx, ready); done || err != nil {
				return d.opError(op, err)
			}
		}
	}
}

// serve polls and calls functions until ready is readable. The caller holds the turn token, which
// serve returns.
func (d *Dispatcher) serve(ctx context.Context, ready <-chan struct{}) (done bool, err error) {
	defer func() { // even if a function panics
		if d.calls.Load()%2 != 0 {
			d.calls.Add(1)
		}
		d.turn <- struct{}{}
	}()
	for {
		if len(d.left) > 0 {
			d.calls.Add(1)
		}
		for len(d.left) > 0 {
			wc := &d.left[0]
			d.left = d.left[1:]
			f, ok := d.find(wc)
			if !ok {
				if f = d.other; f == nil {
					return false, invalid("completion of a request that was not posted through the dispatcher: wr_id %#x, QP %d, %v",
						wc.ID, wc.QPNum, wc.Status)
				}
			}
			f(wc)
		}
		if d.calls.Load()%2 != 0 {
			d.calls.Add(1)
		}
		select {
		case <-ready:
			return true, nil
		default:
		}
		n, err := d.cq.Wait(ctx, d.wcs)
		if err != nil {
			return false, err
		}
		d.left = d.wcs[:n]
	}
}
