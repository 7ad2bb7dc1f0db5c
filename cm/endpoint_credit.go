// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// Credits hold back messages for which the peer has no receive. Two endpoints agree on them during
// connection setup (endpoint_words.go), for each direction separately:
//
//	sender    limit   receives of the peer that its offer and the credit word advertised
//	          used    messages posted
//	receiver  posted  receives posted
//	          told    receives advertised: in the offer, or by the last Write of the credit word
//
// A message waits until used < limit. The receiver advertises new receives by writing the sender's
// credit word. It does so once the receives not yet advertised are three quarters of all that are
// posted or hold a message that Recv has not returned. From one half, a Send carries the Write
// along, which is cheaper. So with 16 buffers there is a Write of 8 bytes for every 8 to 12
// messages, and none without messages.
//
// Invariants:
//
//   - used <= limit <= told <= posted: each message finds a receive. The counters have 64 bits and
//     only grow.
//   - A Write needs no credit, no receive of the peer, and no call of the program other than the
//     one that posted the receive. It needs a free slot of the send queue; if there is none, it
//     gets the next slot that becomes free, ahead of any call. The requests in the queue complete
//     without the peer's program, because their messages have receives. So no Write waits forever.
//   - The sender is never stuck while receives are not advertised: either it has credit, or Recv
//     has messages to return and then checks again, or a Write is in the queue or waits for its
//     slot. If all messages have been returned and the sender has no credit, none of the
//     receives then posted has been advertised, so a Write is due.
//   - Only one Write is in the queue at once, so nothing changes the memory it reads, and the word
//     only grows. The word is stored lowest byte first, so that a device placing the bytes one by
//     one never produces too large a value.
//   - A waiting message holds only the message turn. Requests that need no receive of the peer
//     overtake it.
//
// A list of Do is posted in parts if the credit does not cover all its messages, because the peer
// advertises no more while the sender has some credit. The list keeps the send turn, so that its
// requests stay together.
//
// The sender cannot check the peer's numbers, and need not. A peer that claims too much ends its
// own connection, as a peer without credits does. If it claims too little, or its count goes
// backwards, Send waits until its context is done, as for a peer that does not read.
//
// Receives are not counted, and the peer sends freely, if the endpoint has posted none when it
// makes the offer: receives in an SRQ belong to many connections, and an endpoint without buffers
// may have others that it does not know of.
type credits struct {
	// For messages of this side. used is guarded by the message turn; the others are set before the
	// endpoint is connected.
	limit uint64 // receives of the peer's offer, 0 = the peer does not count
	// the own word: receives that the peer has posted since its offer; nil if this side made no
	// offer
	more *atomic.Uint64
	used uint64

	// For messages of the peer. late is atomic; the fields after it are guarded by Endpoint.mu.
	late    atomic.Bool // a Write waits for a slot of the send queue
	counts  bool        // receives are advertised to the peer
	telling bool        // a Write is in the queue
	posted  uint64
	told    uint64
	before  uint64          // told before the Write in the queue
	offered uint64          // told at the offer, which the word does not count
	grant   []verbs.SendWR  // the Write
	granted func(*verbs.WC) // completion of a Write posted alone
	pair    [2]verbs.SendWR // a Write and the Send that carries it along; guarded by the send turn
}

// The least number of receives worth a Write of the credit word, in quarters of all receives.
const (
	aloneQuarters = 3
	alongQuarters = 2
)

// takesReceive reports whether a request consumes a receive of the peer.
func takesReceive(op verbs.WROpcode) bool {
	switch op {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWriteWithImm, verbs.WRImmData:
		return true
	}
	return false
}

// hasMessage reports whether one of the requests consumes a receive of the peer.
func hasMessage(wrs []verbs.SendWR) bool {
	for i := range wrs {
		if takesReceive(wrs[i].Opcode) {
			return true
		}
	}
	return false
}

// offerCredit returns the number of receives for the offer.
func (e *Endpoint) offerCredit() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.credit
	c.offered = min(c.posted, math.MaxUint32)
	c.told = c.offered
	return uint32(c.offered)
}

// takeCredit starts the counting, after the peer agreed and said how many receives it has posted.
func (e *Endpoint) takeCredit(recvs uint32) {
	c := &e.credit
	c.limit = uint64(recvs)
	e.mu.Lock()
	defer e.mu.Unlock()
	c.grant, c.granted = []verbs.SendWR{e.words.grant()}, e.grantDone
	c.counts = c.offered > 0
}

// left returns the number of messages for which the peer has receives. The caller holds the message
// turn.
func (c *credits) left() int64 {
	if c.limit == 0 {
		return math.MaxInt64
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], c.more.Load())
	return int64(c.limit + binary.LittleEndian.Uint64(b[:]) - c.used)
}

// awaitCredit waits until the peer has a receive for a message. The caller holds the message turn.
func (e *Endpoint) awaitCredit(ctx context.Context) error {
	if e.credit.left() > 0 {
		return nil
	}
	if err := e.until(ctx, func() bool { return e.credit.left() > 0 || e.stopped() != nil }); err != nil {
		return err
	}
	return e.stopped()
}

// affordable returns how many requests from the start of a list the credit covers, and how many
// messages they contain.
func (e *Endpoint) affordable(wrs []verbs.SendWR) (n int, messages uint64) {
	for ; n < len(wrs); n++ {
		if takesReceive(wrs[n].Opcode) {
			if e.credit.left() <= int64(messages) {
				break
			}
			messages++
		}
	}
	return n, messages
}

// owes reports whether receives should be advertised, given the least share of all receives that is
// worth a Write, in quarters. The caller holds e.mu.
func (e *Endpoint) owes(quarters uint64) bool {
	c := &e.credit
	untold := c.posted - c.told
	switch {
	case !c.counts || c.telling || untold == 0:
		return false
	case uint64(e.recvs) == c.posted: // nothing has arrived: kernel siw cannot send before the peer has, if it accepts
		return false
	case e.words.told != nil && e.peerTold(): // the peer sends nothing after its word
		return false
	}
	return 4*untold >= quarters*uint64(e.recvs+e.arrivals.Len())
}

// beginTelling prepares the Write. The caller holds e.mu and a slot of the send queue, and posts
// the Write.
func (e *Endpoint) beginTelling() {
	c := &e.credit
	c.telling, c.before, c.told = true, c.told, c.posted
	binary.LittleEndian.PutUint64(e.words.mr.Bytes()[postedWord:], c.told-c.offered)
}

// cancelTelling records that the Write was not posted.
func (e *Endpoint) cancelTelling() {
	e.mu.Lock()
	e.credit.telling, e.credit.told = false, e.credit.before
	e.mu.Unlock()
}

// tellAlong reports whether the Write goes with the Send of a call, and acquires a slot for it. The
// caller holds the send turn.
func (e *Endpoint) tellAlong(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.owes(alongQuarters) {
		return false
	}
	select {
	case <-e.room:
	default:
		return false
	}
	e.beginTelling()
	c.along = true
	c.left.Add(1)
	return true
}

// tellPeer posts the Write if one is due, and reports whether it did. If place is true, the caller
// is a function of the dispatcher and passes on its slot of the send queue; otherwise the Write
// needs a free slot.
func (e *Endpoint) tellPeer(place bool) bool {
	e.mu.Lock()
	if !e.owes(aloneQuarters) {
		e.credit.late.Store(false)
		e.mu.Unlock()
		return false
	}
	if !place {
		e.credit.late.Store(true) // before looking for a slot: one that becomes free later goes to the Write
		select {
		case <-e.room:
		default:
			e.mu.Unlock()
			return false
		}
	}
	e.credit.late.Store(false)
	e.beginTelling()
	e.mu.Unlock()
	e.out.Add(1)
	if n, _ := e.d.PostSend(e.qp, e.credit.grant, e.credit.granted); n == 1 {
		return true
	}
	e.cancelTelling()
	if !place {
		e.room <- struct{}{}
		e.wake()
	}
	e.finished(1)
	return false
}

// wake makes a waiting goroutine recheck its condition after a slot of the send queue was released.
// Otherwise only a completion would wake it. The post was refused, so either the QP is in the error
// state and flushes a receive at once, or other completions will arrive.
func (e *Endpoint) wake() {
	if e.qp.State() != verbs.QPStateErr {
		return
	}
	e.out.Add(1)
	if n, _ := e.d.PostRecv(e.qp, make([]verbs.RecvWR, 1), func(*verbs.WC) { e.finished(1) }); n == 0 {
		e.finished(1)
	}
}

// grantDone is called by the dispatcher when a Write posted alone completes.
func (e *Endpoint) grantDone(wc *verbs.WC) {
	e.told(wc.Status)
	e.finished(1)
}

// told records the completion of the Write and releases its slot, unless the next Write is due. If
// the Write failed, so did the connection.
func (e *Endpoint) told(status verbs.WCStatus) {
	e.mu.Lock()
	e.credit.telling = false
	e.credit.counts = e.credit.counts && status == verbs.WCSuccess
	e.mu.Unlock()
	if !e.tellPeer(true) {
		e.room <- struct{}{}
	}
}

// freePlace releases a slot of the send queue after a completion: to the Write if it is waiting for
// one.
func (e *Endpoint) freePlace() {
	if !e.credit.late.Load() || !e.tellPeer(true) {
		e.room <- struct{}{}
	}
}

// giveBack releases slots that were not used. The caller holds the send turn.
func (e *Endpoint) giveBack(places int) {
	for range places {
		e.room <- struct{}{}
	}
	if e.credit.late.Load() {
		e.tellPeer(false)
	}
}
