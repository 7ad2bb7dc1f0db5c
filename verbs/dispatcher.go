// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Dispatcher serves one CQ for any number of QPs: each request is posted with a function, which
// gets the completion.
//
//	d, err := verbs.NewDispatcher(cq, verbs.DispatcherConfig{})
//	_, err = d.PostSend(qp, []verbs.SendWR{verbs.Read(remote, sge)}, func(wc *verbs.WC) {
//		... wc.Err() says whether the data are there ...
//	})
//	err = d.Run(ctx)
//
// # Functions
//
// [Dispatcher.Run] and [Dispatcher.Wait] take completions from the CQ and call the functions, one
// at a time, in the order in which the requests completed. Each function is called once for each
// request that was posted with it, also if the request failed or was flushed; [WC.ID] is then the
// ID that the program gave the request. The WC is valid until the function returns.
//
// A function may post further requests. It must not wait: not in Run or Wait, nor for anything that
// needs another completion of the CQ ([Dispatcher.Inside]). While it runs, no other function of the
// dispatcher does.
//
// # Room
//
// The dispatcher has a table with one entry for each completion that the CQ can hold ([CQ.CQE],
// when the dispatcher is made), and refuses requests for which the table has no entry with an error
// that Is [ErrQueueFull]. So the CQ cannot overflow. A program that shares a dispatcher between
// several users of its own lets each of them [Dispatcher.Reserve] what its queues can hold; then
// none of them finds the table full.
//
// # Rules
//
// All requests that complete into the CQ should be posted through the dispatcher, because it takes
// all completions. DispatcherConfig.Other gets those of other requests. A signalled completion is
// asked for of every request.
//
// Before a QP is closed, drain it ([QP.Drain]) and let the functions of its requests be called: the
// completions of a destroyed QP can be gone, and then their entries of the table are lost. The
// receives in an SRQ that is closed never complete. The dispatcher itself need not be closed. All
// methods may be called concurrently; posting and calling functions allocates nothing.
type Dispatcher struct {
	cq    *CQ
	other func(*WC)

	turn chan struct{} // holds a token unless a goroutine takes completions; it guards what follows
	wcs  []WC
	left []WC // of wcs: those whose functions have not been called

	calls atomic.Uint64 // odd while functions are called

	mu       sync.Mutex // guards what follows
	entries  []entry
	free     []uint32 // indexes of entries that are not in use
	reserved int
	sends    [][]SendWR // lists for PostSend to change IDs in
	recvs    [][]RecvWR
}

// entry is that of one request. Its wr_id is its index and its generation, so no completion is
// taken for that of another request.
type entry struct {
	f   func(*WC) // nil = not in use
	id  uint64    // the program's
	gen uint32
}

// DispatcherConfig configures a [Dispatcher].
type DispatcherConfig struct {
	// Other gets the completions of requests that were not posted through the dispatcher. Without
	// it (nil) such a completion ends Run and Wait with an error that Is ErrInvalid.
	Other func(*WC)
}

// dispatchBatch is the largest number of completions that are polled at a time.
const dispatchBatch = 64

// NewDispatcher makes a dispatcher for a CQ that has a channel of its own (otherwise the error Is
// [ErrSharedChannel]). The CQ belongs to the caller; nothing else should poll it from now on.
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
	gen := rand.Uint32() // the IDs of requests of others are small numbers, most likely
	for i := range d.entries {
		d.entries[i].gen = gen
		d.free[i] = uint32(n - 1 - i)
	}
	d.turn <- struct{}{}
	return d, nil
}

// CQ returns the dispatcher's CQ.
func (d *Dispatcher) CQ() *CQ { return d.cq }

// Outstanding returns the number of requests whose functions have not been called yet.
func (d *Dispatcher) Outstanding() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries) - len(d.free)
}

// Reserve sets entries of the table aside for a user of the dispatcher, who will have n requests
// outstanding at most. It is bookkeeping: as long as each user reserves what it needs, no post
// finds the table full. If more would be reserved than there are, the error Is [ErrLimit]. Release
// gives entries back.
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

// Release gives back n entries that were reserved.
func (d *Dispatcher) Release(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= n
}

// PostSend posts send requests to qp, as [QP.PostSend] does, and has f called for each of them. The
// QP's SendCQ must be the dispatcher's CQ.
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
	clear(list) // it refers to the memory of the program
	d.sends = append(d.sends, list[:0])
	d.mu.Unlock()
	return n, err
}

// PostRecv posts receives to qp, as [QP.PostRecv] does, and has f called for each of them. The QP's
// RecvCQ must be the dispatcher's CQ.
func (d *Dispatcher) PostRecv(qp *QP, wrs []RecvWR, f func(*WC)) (n int, err error) {
	if err := d.postable(qp != nil && qp.recvCQ == d.cq, f); err != nil {
		return 0, d.opError("Dispatcher.PostRecv", err)
	}
	return d.postRecv("Dispatcher.PostRecv", wrs, f, qp, nil)
}

// PostSRQRecv posts receives to srq, as [SRQ.PostRecv] does, and has f called for each of them. The
// RecvCQ of the QPs that use the SRQ must be the dispatcher's CQ. [WC.QPNum] says to which QP the
// message came.
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

// takeList returns an empty list out of those that are not in use. The caller holds d.mu.
func takeList[T any](lists *[][]T) []T {
	if n := len(*lists); n > 0 {
		list := (*lists)[n-1]
		*lists = (*lists)[:n-1]
		return list
	}
	return nil
}

// enter puts a request into the table and returns its wr_id. The caller holds d.mu and knows that
// there is room.
func (d *Dispatcher) enter(id uint64, f func(*WC)) uint64 {
	n := len(d.free) - 1
	i := d.free[n]
	d.free = d.free[:n]
	e := &d.entries[i]
	e.f, e.id = f, id
	return uint64(e.gen)<<32 | uint64(i)
}

// leave takes a request out of the table. The caller holds d.mu.
func (d *Dispatcher) leave(e *entry, i uint32) {
	e.f = nil
	e.gen++
	d.free = append(d.free, i)
}

// find takes the request of a completion out of the table. It returns false if there is none.
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

// Run calls the functions of requests as they complete, until ctx is done. Then the error Is
// ctx.Err(). Requests that are outstanding stay so; a later Run or Wait calls their functions. Run
// also ends when the CQ is closed, with an error that Is [ErrClosed], and when it overflows.
//
// One goroutine at a time takes completions. If several are in Run or Wait, the others stand by.
func (d *Dispatcher) Run(ctx context.Context) error { return d.wait(ctx, "Dispatcher.Run", nil) }

// Wait waits until something can be received from ready, which it then receives, or until ready is
// closed. Meanwhile it calls functions as Run does, if no other goroutine does. So a program of few
// goroutines needs no Run: each of them waits for what the function of its request sends.
//
// What is sent to ready should be sent by a function of the dispatcher, without waiting: the
// channel needs room for it. The goroutine that takes completions looks at ready after each batch
// of them; what is sent by others it sees only then.
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

// serve takes completions and calls functions until ready is. The caller has the turn, which serve
// gives back.
func (d *Dispatcher) serve(ctx context.Context, ready <-chan struct{}) (done bool, err error) {
	defer func() { // also if a function panics
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
