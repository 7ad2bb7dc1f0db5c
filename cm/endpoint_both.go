// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// The end of a connection of two endpoints with ShutdownBoth. Each side has a word of memory, which
// the other writes once, to say: everything of mine has arrived at you, and I know it.
//
//	dialled                                accepted
//	confirm                                confirm
//	write the peer's word  ------------->  wait for the own word
//	wait for the own word  <-------------  write the peer's word
//	disconnect             ------------->  wait for the end
//
// Invariants:
//
//   - A word is written only when what its writer has sent is confirmed, and no Do or Send is
//     admitted after that. So who finds the own word written, and has confirmed, knows that both
//     directions have arrived.
//   - The accepting side writes second. So when it writes it knows everything, and when the
//     dialling side finds its word written, the peer needs nothing more of the connection. Only
//     then does anybody end it.
//   - The connection carries nothing after the second word. So nothing can cut that off but a
//     failure of the network or the end of a process. Then the accepting side, which knows, gets
//     nil, and the dialling side, which does not, the reason.
//   - The words are no messages: they use no receive of the program's, with an SRQ neither, and
//     none can be taken for one.
//
// Both sides must know beforehand that the other will call Shutdown: one that waits for it in vain
// waits until its context ends. Nothing of the connection says what a program will do, so it cannot
// be found out, and without ShutdownBoth no side waits. What the two devices do by themselves is
// not enough: a Read that is answered says what has arrived at the peer, not that the peer's
// program will not send again.

const (
	bothPause    = 100 * time.Microsecond // between the first two looks at the own word, doubled each time
	maxBothPause = 20 * time.Millisecond
)

// agree is the handshake. The caller has the turn to send and has confirmed. It can be called again
// when ctx has ended it.
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

// until waits until cond is true, or until ctx is done or the connection has ended without that. A
// word that is written wakes nobody, so it looks again after a while; in the meantime it takes
// completions as every call does, which drives devices that need it.
func (e *Endpoint) until(ctx context.Context, cond func() bool) error {
	for pause := bothPause; ; pause = min(2*pause, maxBothPause) {
		over := e.over() // before cond: what the peer wrote before the end is in place
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
