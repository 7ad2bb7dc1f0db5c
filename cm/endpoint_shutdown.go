// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// noteSent notes the completion of a send request. Those of one queue complete in the order of
// posting, and a Read or atomic is answered after everything before it has been executed. So when
// it completes, what has completed before it has arrived.
func (e *Endpoint) noteSent(op verbs.WCOpcode) {
	switch op {
	case verbs.WCSend, verbs.WCRDMAWrite, verbs.WCImmData:
		e.dirty.Store(true)
	case verbs.WCRDMARead, verbs.WCCompSwap, verbs.WCFetchAdd, verbs.WCMaskedCompSwap, verbs.WCMaskedFetchAdd:
		e.dirty.Store(false)
	}
}

// Shutdown waits until the requests of Do and Send have completed and have arrived at the peer, and
// ends the connection. When it returns nil, the peer's device has executed every request that
// completed on this endpoint: Writes are in the peer's memory, and messages have completed
// receives, which the peer's program can poll also after the end. This needs nothing of the peer's
// program.
//
// On InfiniBand and RoCE a completion says that already. On iWARP, Shutdown sends a Read of 0 bytes
// behind the last request: the peer's device answers it after everything before it (RFC 5040
// section 5.5). One device does not always answer it: kernel siw, while it sends. Endpoints
// therefore have 8 bytes that the peer reads instead, and tell each other by [FenceLen] bytes at
// the end of their private data. A program on kernel siw that has no Endpoint should send nothing
// while its peer is in Shutdown.
//
// Shutdown confirms one direction: what this side has sent. Messages of the peer that arrive
// meanwhile can be taken by Recv, before and after the end; those that it sends later are lost. So
// the side that has sent the last message calls Shutdown. The other side leaves the connection open
// until then: it calls Recv until that returns io.EOF, and then Close. If it closes earlier,
// Shutdown cannot know what has arrived. If both sides call Shutdown at the same time, at least one
// of them gets nil, which holds for what that side has sent; the other can get io.EOF. If both have
// something to send at the end, one says in its last message that it is the last. The other takes
// that message, and then calls Shutdown: when it returns nil, both directions have arrived.
//
// With [EndpointConfig].ShutdownBoth on both sides, both call Shutdown, in any order and at any
// time: each waits for the other, which may go on sending until then, and both get nil when
// everything that either has sent has arrived. The messages that have arrived can be taken by Recv,
// also after the end. This works on every device, with an SRQ too, and uses no receive. If the peer
// closes instead, or fails, the error has the reason (io.EOF), and it is not known what has
// arrived; a peer that does neither is waited for until ctx is done.
//
// When ctx is done before that, the connection has not ended, and Shutdown can be called again; Do
// and Send are refused from the first call on. If the connection has ended before Shutdown could
// confirm, the error has the reason (io.EOF if the peer disconnected), and it is not known what has
// arrived; if there was nothing to confirm, it is nil. If the connection allows no Reads
// (ID.Depths), and there is something to confirm, the error Is verbs.ErrNotSupported.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	const op = "Shutdown"
	if !e.node.Enter() {
		return e.opError(op, verbs.ErrClosed)
	}
	defer e.node.Exit()
	e.shut.Store(true)
	if ctx.Err() != nil { // also if nothing would have to be waited for
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
		e.confirmed = true // and nothing is posted any more
	}
	if e.words.told != nil {
		if err := e.agree(ctx); err != nil {
			return e.opError(op, err)
		}
	}
	return e.opError(op, e.id.Disconnect())
}

// confirm waits until everything that was sent has arrived. The caller has the turn to send.
func (e *Endpoint) confirm(ctx context.Context) error {
	// With all places of the queue free, all requests have completed.
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
