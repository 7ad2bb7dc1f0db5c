// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// noteSent records the completion of a send request. The requests of one queue complete in the
// order of posting, and a Read or atomic is answered after everything before it has been executed.
// So when it completes, everything that completed before it has arrived.
func (e *Endpoint) noteSent(op verbs.WCOpcode) {
	switch op {
	case verbs.WCSend, verbs.WCRDMAWrite, verbs.WCImmData:
		e.dirty.Store(true)
	case verbs.WCRDMARead, verbs.WCCompSwap, verbs.WCFetchAdd, verbs.WCMaskedCompSwap, verbs.WCMaskedFetchAdd:
		e.dirty.Store(false)
	}
}

// Shutdown waits until the requests of Do and Send have completed and have arrived at the peer, and
// then disconnects. When it returns nil, the peer's device has executed every request that
// completed on this endpoint: Writes are in the peer's memory, and messages have completed
// receives, which the peer's program can still poll after the disconnect. The peer's program need
// not do anything.
//
// On InfiniBand and RoCE a completion already implies arrival. On iWARP, Shutdown posts a Read of 0
// bytes after the last request, which the peer's device answers after executing everything before
// it (RFC 5040 section 5.5). One device does not always answer such a Read: kernel siw while it
// sends. Endpoints therefore expose 8 bytes that the peer reads instead, and advertise them in
// [FenceLen] bytes at the end of their private data. A program on kernel siw that uses no Endpoint
// should send nothing while its peer is in Shutdown.
//
// Shutdown confirms one direction: what this side sent. Recv returns messages of the peer that
// arrive meanwhile, before and after the disconnect; messages that the peer sends later are lost.
// Therefore the side that sends the last message calls Shutdown. The other side keeps the
// connection open until then: it calls Recv until Recv returns io.EOF, and then Close. If it closes
// earlier, Shutdown cannot know what has arrived.
//
// If both sides call Shutdown at the same time, at least one of them returns nil, which covers what
// that side sent; the other can return io.EOF. If both have something to send at the end, one side
// marks its last message as the last. The other side receives that message and then calls Shutdown:
// when this returns nil, both directions have arrived.
//
// With [EndpointConfig].ShutdownBoth on both sides, both call Shutdown, in any order and at any
// time. Each waits for the other, which may go on sending until it calls Shutdown, and both return
// nil when everything that either side sent has arrived. Recv returns the messages that have
// arrived, also after the disconnect. This works on every device and with an SRQ, and uses no
// receive. If the peer closes instead, or fails, the error has the reason (io.EOF), and it is not
// known what has arrived. If the peer does neither, Shutdown waits until ctx is done.
//
// If ctx is done before the disconnect, the connection remains open, and Shutdown can be called
// again; Do and Send are refused from the first call on. If the connection ends before Shutdown
// could confirm, the error has the reason (io.EOF if the peer disconnected), and it is not known
// what has arrived; if there was nothing to confirm, it is nil. If the connection allows no Reads
// (ID.Depths), and there is something to confirm, the error Is verbs.ErrNotSupported.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	const op = "Shutdown"
	if !e.node.Enter() {
		return e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	e.shut.Store(true)
	if ctx.Err() != nil { // even if there is nothing to wait for
		return e.opError(op, ctx.Err())
	}
	if err := e.takeSendTurn(ctx); err != nil {
		return e.opError(op, err)
	}
	defer e.releaseTurn(false)
	if !e.confirmed {
		if err := e.confirm(ctx); err != nil {
			return e.opError(op, err)
		}
		e.confirmed = true // and nothing is posted from here on
	}
	if e.words.told != nil {
		if err := e.agree(ctx); err != nil {
			return e.opError(op, err)
		}
	}
	return e.opError(op, e.id.Disconnect())
}

// confirm waits until everything that was sent has arrived. The caller holds the send turn.
func (e *Endpoint) confirm(ctx context.Context) error {
	// When all slots of the queue are free, all requests have completed.
	for got := range cap(e.room) {
		if err := e.wait(ctx, e.room); err != nil {
			e.giveBack(got)
			return err
		}
	}
	e.giveBack(cap(e.room))
	if !e.dirty.Load() || e.Context().Device().Info().Transport != verbs.TransportIWARP {
		return nil
	}
	if ord, _ := e.id.Depths(); ord == 0 {
		return fmt.Errorf("%w: the connection allows no Reads, so what was sent cannot be confirmed",
			verbs.ErrNotSupported)
	}
	c, n, err := e.post(ctx, -1, []verbs.SendWR{e.words.fence()})
	if n == 0 {
		return err
	}
	_, err = e.await(ctx, "Shutdown", c)
	return err
}
