// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// buffers is a pool of message buffers of one size in one region.
type buffers struct {
	mr   *verbs.MR
	size int
	sges []verbs.SGE   // each covers a whole buffer
	ok   chan struct{} // holds a token for each entry of free

	mu   sync.Mutex // guards free
	free []int
}

// init makes n buffers of a size.
func (b *buffers) init(mr *verbs.MR, n, size int) {
	b.mr, b.size, b.sges, b.ok = mr, size, make([]verbs.SGE, n), make(chan struct{}, n)
	for i := range n {
		b.sges[i] = verbs.SGE{Addr: mr.Addr() + uint64(i*size), Length: uint32(size), LKey: mr.LKey()}
		b.put(n - 1 - i)
	}
}

// bytes returns the memory of a buffer.
func (b *buffers) bytes(i int) []byte { return b.mr.Bytes()[i*b.size : (i+1)*b.size] }

// sgl returns the scatter/gather list for n bytes of a buffer, which owns the list.
func (b *buffers) sgl(i, n int) []verbs.SGE {
	b.sges[i].Length = uint32(n)
	return b.sges[i : i+1]
}

// take removes a buffer from the pool. The caller has received a token from ok.
func (b *buffers) take() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := len(b.free) - 1
	i := b.free[last]
	b.free = b.free[:last]
	return i
}

// put returns a buffer that no request uses to the pool.
func (b *buffers) put(i int) {
	b.mu.Lock()
	b.free = append(b.free, i)
	b.mu.Unlock()
	b.ok <- struct{}{}
}

// arrival is a completed receive.
type arrival struct {
	wc  verbs.WC
	own bool // its memory is the buffer of the endpoint with index wc.ID
}

// makeBuffers allocates the message buffers and posts the receives.
func (e *Endpoint) makeBuffers(cfg *EndpointConfig) error {
	n, size := cfg.Messages, cfg.MessageSize
	if n == 0 {
		return nil
	}
	alloc := func(b *buffers, access verbs.AccessFlags) error {
		mr, err := e.pd.AllocMR(n*size, access)
		if err != nil {
			return err
		}
		e.undo = append(e.undo, mr.Close)
		b.init(mr, n, size)
		return nil
	}
	if err := alloc(&e.sendBufs, 0); err != nil || cfg.SRQ != nil {
		return err
	}
	if err := alloc(&e.recvBufs, verbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range n {
		if err := e.postBuffer(i); err != nil {
			return err
		}
	}
	return nil
}

// postBuffer posts a receive into a buffer of the endpoint.
func (e *Endpoint) postBuffer(i int) error {
	return e.postRecv([]verbs.RecvWR{{ID: uint64(i), SGL: e.recvBufs.sgl(i, e.recvBufs.size)}}, e.inbox)
}

func (e *Endpoint) postRecv(wrs []verbs.RecvWR, f func(*verbs.WC)) error {
	e.mu.Lock()
	if room := cap(e.arrived) - e.arrivals.Len() - e.recvs; len(wrs) > room {
		e.mu.Unlock()
		return fmt.Errorf("%w: %d receives, room for %d", verbs.ErrQueueFull, len(wrs), room)
	}
	e.recvs += len(wrs)
	e.mu.Unlock()
	e.out.Add(int64(len(wrs)))
	n, err := e.d.PostRecv(e.qp, wrs, f)
	refused := len(wrs) - n
	e.mu.Lock()
	e.recvs -= refused
	e.credit.posted += uint64(n)
	due := e.owes(aloneQuarters)
	e.mu.Unlock()
	if refused > 0 {
		e.finished(refused)
	}
	if due {
		e.tellPeer(false)
	}
	return err
}

// received returns the completion function for receives into memory of the endpoint, or of the
// caller.
func (e *Endpoint) received(own bool) func(*verbs.WC) {
	return func(wc *verbs.WC) {
		e.mu.Lock()
		e.recvs--
		e.arrivals.Push(arrival{*wc, own})
		e.mu.Unlock()
		e.arrived <- struct{}{}
		e.finished(1)
	}
}

// PostRecv posts receives into memory of the caller. Recv returns their completions, with their
// IDs, and copies nothing. The memory then belongs to the caller again, who can post it with
// another PostRecv. If the posted receives and the messages that wait for Recv would exceed the
// depth of the receive queue, the error Is verbs.ErrQueueFull.
func (e *Endpoint) PostRecv(wrs ...verbs.RecvWR) error {
	const op = "PostRecv"
	if !e.node.Enter() {
		return e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	return e.opError(op, e.postRecv(wrs, e.outbox))
}

// Send sends p as one message and waits until the request has completed. It copies p to a buffer of
// the endpoint, and waits for a free one if necessary. If p is longer than MessageSize, the error
// Is verbs.ErrLimit. The peer needs a receive with room for the message.
//
// If the peer is an Endpoint, Send first waits until the peer has a receive for this message. A nil
// error means that there was one: the message arrives, unless it is too long for the receive, or
// unless, on iWARP, the connection ends first ([Endpoint.Shutdown] confirms delivery). If messages
// do not wait for the peer (see Credits at Endpoint), nil means only that this side's device has
// sent the message, on iWARP, or that the peer's device has accepted it, on InfiniBand.
func (e *Endpoint) Send(ctx context.Context, p []byte) error {
	const op = "Send"
	if !e.node.Enter() {
		return e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	if e.sendBufs.mr == nil {
		return e.opError(op, fmt.Errorf("%w: an endpoint without buffers (EndpointConfig.Messages is None)",
			verbs.ErrInvalid))
	}
	if len(p) > e.sendBufs.size {
		return e.opError(op, &verbs.LimitError{Name: "MessageSize", Limit: uint64(e.sendBufs.size),
			Value: uint64(len(p))})
	}
	if err := e.takeTurn(ctx, true); err != nil {
		return e.opError(op, err)
	}
	if err := e.wait(ctx, e.sendBufs.ok); err != nil {
		e.releaseTurn(true)
		return e.opError(op, err)
	}
	i := e.sendBufs.take()
	copy(e.sendBufs.bytes(i), p)
	_, err := e.run(ctx, op, i, true, []verbs.SendWR{verbs.Send(e.sendBufs.sgl(i, len(p))...)})
	return err
}

// Recv waits for the next message if necessary and copies its data to p. The completion has the
// length (ByteLen) and the immediate value. A Write with immediate (opcode verbs.WCRecvRDMAWithImm)
// and Immediate Data have no data to copy. If p is too short, the error Is io.ErrShortBuffer, and
// the next Recv returns the same message.
//
// Once the connection has ended and all messages have been returned, the error has the reason; it
// Is io.EOF if the peer disconnected.
func (e *Endpoint) Recv(ctx context.Context, p []byte) (verbs.WC, error) {
	const op = "Recv"
	if !e.node.Enter() {
		return verbs.WC{}, e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	if e.qp.SRQ() != nil {
		return verbs.WC{}, e.opError(op, fmt.Errorf("%w: the receives are in an SRQ", verbs.ErrInvalid))
	}
	if ctx.Err() != nil {
		return verbs.WC{}, e.opError(op, ctx.Err())
	}
	select {
	case e.recvTurn <- struct{}{}:
		defer func() { <-e.recvTurn }()
	case <-ctx.Done():
		return verbs.WC{}, e.opError(op, ctx.Err())
	}
	if err := e.wait(ctx, e.arrived); err != nil {
		return verbs.WC{}, e.opError(op, err)
	}
	wc, err := e.takeMessage(p)
	return wc, e.opError(op, err)
}

// takeMessage removes the oldest arrival and returns its message. The caller holds the receive turn
// and a token of e.arrived.
func (e *Endpoint) takeMessage(p []byte) (verbs.WC, error) {
	e.mu.Lock()
	a := *e.arrivals.At(0)
	data := a.own && a.wc.Opcode == verbs.WCRecv
	switch {
	case e.node.Closed():
		e.mu.Unlock()
		e.arrived <- struct{}{}
		return verbs.WC{}, verbs.ErrClosed
	case a.wc.Status != verbs.WCSuccess: // further calls return it too
		e.mu.Unlock()
		e.arrived <- struct{}{}
		if a.own {
			a.wc.ID = 0
		}
		return a.wc, e.reason(a.wc.Status)
	case data && int(a.wc.ByteLen) > len(p):
		e.mu.Unlock()
		e.arrived <- struct{}{}
		a.wc.ID = 0
		return a.wc, fmt.Errorf("%w: %d bytes for a message of %d", io.ErrShortBuffer, len(p), a.wc.ByteLen)
	}
	e.arrivals.Pop()
	e.mu.Unlock()
	if !a.own {
		e.tellPeer(false) // advertises what PostRecv posted
		return a.wc, nil
	}
	i := int(a.wc.ID)
	a.wc.ID = 0
	if data {
		copy(p, e.recvBufs.bytes(i)[:a.wc.ByteLen])
	}
	err := e.postBuffer(i)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || e.node.Closed() { // no further message would arrive
		err = nil
	}
	return a.wc, err
}
