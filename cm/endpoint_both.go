// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// How two endpoints with ShutdownBoth close their connection. Each side has a word of memory that
// the other writes once, to say: you have everything that I sent, and I know it.
//
//	dialed                                 accepted
//	confirm                                confirm
//	write the peer's word  ------------->  wait for the own word
//	wait for the own word  <-------------  write the peer's word
//	disconnect             ------------->  wait for the end
//
// Invariants:
//
//   - A side writes the word only after everything it sent is confirmed, and admits no Do or Send
//     after that. So a side that has confirmed and finds its own word written knows that both
//     directions have arrived.
//   - The accepting side writes second. So when it writes, it knows everything, and when the
//     dialing side finds its word written, the peer needs nothing more from the connection. Only
//     then does either side disconnect.
//   - The connection carries nothing after the second word, so only a network failure or the end of
//     a process can cut that word off. In this case the accepting side, which knows, returns nil,
//     and the dialing side, which does not, returns the reason.
//   - The words are not messages: they consume no receive of the program, not even with an SRQ, and
//     cannot be mistaken for one.
//
// Both sides must know beforehand that the other will call Shutdown, because a side that waits in
// vain waits until its context is done. This cannot be detected, since nothing on the connection
// says what a program is going to do, and without ShutdownBoth no side waits. Acknowledgements by
// the devices do not suffice: an answered Read says what has arrived at the peer, not that the
// peer's program will send nothing more.

const (
	bothPause    = 100 * time.Microsecond // between the first two checks of the own word; doubles each time
	maxBothPause = 20 * time.Millisecond
)

// agree performs the handshake. The caller holds the send turn and has confirmed. It can be called
// again if ctx interrupted it.
func (e *Endpoint) agree(ctx context.Context) error {
	if e.dialled {
		if err := e.tell(ctx); err != nil {
			return err
		}
		return e.until(ctx, e.peerTold)
	}
	if err := e.until(ctx, e.peerTold); err != nil {
		return err
	}
	_ = e.tell(ctx) // if it fails, ctx is done or the connection has ended
	return e.until(ctx, e.over)
}

// tell writes the peer's word.
func (e *Endpoint) tell(ctx context.Context) error {
	if e.hasTold {
		return nil
	}
	c, n, err := e.post(ctx, -1, []verbs.SendWR{e.words.tell()})
	if n > 0 {
		_, err = e.await(ctx, "Shutdown", c)
	}
	e.hasTold = err == nil
	return err
}

// peerTold reports whether the peer has written the own word.
func (e *Endpoint) peerTold() bool { return e.words.told.Load() != 0 }

// over reports whether the connection has ended.
func (e *Endpoint) over() bool {
	select {
	case <-e.id.Done():
		return true
	default:
		return false
	}
}

// until waits until cond is true, ctx is done, or the connection has ended. A Write of the peer
// wakes no goroutine, so until polls cond. In between it polls the CQ as every call does, which
// drives devices that need it.
func (e *Endpoint) until(ctx context.Context, cond func() bool) error {
	for pause := bothPause; ; pause = min(2*pause, maxBothPause) {
		over := e.over() // before cond: what the peer wrote before the end is then in place
		if cond() {
			return nil
		}
		if over {
			return e.reason(verbs.WCWRFlushErr)
		}
		short, cancel := context.WithTimeout(ctx, pause)
		err := e.wait(short, nil)
		ended := short.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !ended {
			return err
		}
	}
}
