// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// Credits hold messages back for which the peer has no receive. Two endpoints agree on them while
// they connect (endpoint_words.go), in each direction for itself:
//
//	sender    limit   receives of the peer that this side knows of: by its offer, and by the credit word
//	          used    the messages that have been posted
//	receiver  posted  receives that have been posted
//	          told    those of them that are in the offer, or in the last Write of the sender's credit word
//
// A message waits until used < limit. The receiver writes the sender's word when it owes enough:
// when the receives that are untold are three quarters of all that are posted or hold a message
// that Recv has not taken. A Send takes the Write along from the half on, which is cheaper. So 16
// buffers need a Write of 8 bytes for each 8 to 12 messages, and without messages there are no
// Writes.
//
// Invariants:
//
//   - used <= limit <= told <= posted: each message finds a receive. The counters have 64 bits and
//     only grow.
//   - A Write needs no credit, no receive of the peer, and no call of the program but that which
//     posted the receive. It takes a free place of the send queue; if there is none, the next place
//     that becomes free is not given to a call before the Write has had it. What is in the queue
//     completes without the peer's program, because its messages have their receives. So no Write
//     waits forever.
//   - While receives are untold, the sender is not stuck: either it has credit, or Recv has
//     messages to take, which looks again, or a Write is in the queue or waits for its place. If
//     all messages have been taken and the sender has no credit, what is untold is all.
//   - One Write is in the queue at a time, so nobody changes what it reads, and the word grows. It
//     is stored with the lowest byte first: a device that places the bytes one after the other
//     makes no value that is too large.
//   - A message that waits holds the turn of the messages and nothing else. Requests that take no
//     receive of the peer pass it.
//
// A list of Do is posted in parts if there is no credit for all its messages, because a sender that
// has some credit is not told of more. The list then keeps the turn to send, so that its requests
// stay together.
//
// The sender cannot check what the peer says, and need not: a peer that says too much ends its own
// connection, as one without credits does, and for one that says too little, or goes backwards,
// Send waits until its context ends, as for one that does not read.
//
// Receives are not counted, and the peer sends as it likes, if the endpoint has posted none when it
// makes the offer: those of an SRQ belong to many connections, and an endpoint without buffers may
// have others that it does not know.
type credits struct {
	// Of the messages of this side. used is guarded by the turn of messages; the others are set
	// before the endpoint is connected.
	limit uint64         // receives of the peer's offer, 0 = the peer does not count
	more  *atomic.Uint64 // the own word: receives that the peer has posted since; nil without an offer
	used  uint64

	// Of the messages of the peer. late is atomic, what follows is guarded by Endpoint.mu.
	late    atomic.Bool // a Write waits for a place in the send queue
	counts  bool        // the peer wants to be told
	telling bool        // a Write is in the queue
	posted  uint64
	told    uint64
	before  uint64          // told without the Write in the queue
	offered uint64          // told of the offer, which the word does not count
	grant   []verbs.SendWR  // the Write
	granted func(*verbs.WC) // of a Write that goes alone
	pair    [2]verbs.SendWR // a Write and the Send that takes it along; guarded by the turn to send
}

// How much a Write of the credit word must be worth, in quarters of the receives.
const (
	aloneQuarters = 3
	alongQuarters = 2
)

// takesReceive reports whether a request takes a receive of the peer.
func takesReceive(op verbs.WROpcode) bool {
	switch op {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWriteWithImm, verbs.WRImmData:
		return true
	}
	return false
}

// hasMessage reports whether one of the requests takes a receive of the peer.
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

// takeCredit begins to count. The peer has agreed and has posted so many receives.
func (e *Endpoint) takeCredit(recvs uint32) {
	c := &e.credit
	c.limit = uint64(recvs)
	e.mu.Lock()
	defer e.mu.Unlock()
	c.grant, c.granted = []verbs.SendWR{e.words.grant()}, e.grantDone
	c.counts = c.offered > 0
}

// left is the number of messages for which the peer has receives. The caller has the turn of
// messages.
func (c *credits) left() int64 {
	if c.limit == 0 {
		return math.MaxInt64
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], c.more.Load())
	return int64(c.limit + binary.LittleEndian.Uint64(b[:]) - c.used)
}

// awaitCredit waits until the peer has a receive for a message. The caller has the turn of
// messages.
func (e *Endpoint) awaitCredit(ctx context.Context) error {
	if e.credit.left() > 0 {
		return nil
	}
	if err := e.until(ctx, func() bool { return e.credit.left() > 0 || e.stopped() != nil }); err != nil {
		return err
	}
	return e.stopped()
}

// affordable is the number of requests of a list, from the first, for which there is credit, and
// how much they need.
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

// owes reports whether the peer should be told, if that must be worth so many quarters of the
// receives. The caller holds e.mu.
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

// beginTelling prepares the Write. The caller holds e.mu, has a place of the send queue, and posts
// it.
func (e *Endpoint) beginTelling() {
	c := &e.credit
	c.telling, c.before, c.told = true, c.told, c.posted
	binary.LittleEndian.PutUint64(e.words.mr.Bytes()[postedWord:], c.told-c.offered)
}

// cancelTelling notes that the Write was not posted.
func (e *Endpoint) cancelTelling() {
	e.mu.Lock()
	e.credit.telling, e.credit.told = false, e.credit.before
	e.mu.Unlock()
}

// tellAlong reports whether the Write goes with the Send of a call, and takes a place for it. The
// caller has the turn to send.
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

// tellPeer posts the Write if one is due, and reports that. The caller is a function of the
// dispatcher which has a place of the send queue for it, or it has none, and the Write gets one
// that is free.
func (e *Endpoint) tellPeer(place bool) bool {
	e.mu.Lock()
	if !e.owes(aloneQuarters) {
		e.credit.late.Store(false)
		e.mu.Unlock()
		return false
	}
	if !place {
		e.credit.late.Store(true) // before it looks for a place: one that becomes free later goes to the Write
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

// wake has a goroutine that waits look at what it waits for, after a place of the send queue was
// given back that only a completion would have told it of. The post was refused, so either the QP
// is in the error state and flushes a receive at once, or other completions come.
func (e *Endpoint) wake() {
	if e.qp.State() != verbs.QPStateErr {
		return
	}
	e.out.Add(1)
	if n, _ := e.d.PostRecv(e.qp, make([]verbs.RecvWR, 1), func(*verbs.WC) { e.finished(1) }); n == 0 {
		e.finished(1)
	}
}

// grantDone is called by the dispatcher when a Write of its own has completed.
func (e *Endpoint) grantDone(wc *verbs.WC) {
	e.told(wc.Status)
	e.finished(1)
}

// told notes that the Write has completed, and gives its place back, unless the next one is due. If
// it has failed, the connection has.
func (e *Endpoint) told(status verbs.WCStatus) {
	e.mu.Lock()
	e.credit.telling = false
	e.credit.counts = e.credit.counts && status == verbs.WCSuccess
	e.mu.Unlock()
	if !e.tellPeer(true) {
		e.room <- struct{}{}
	}
}

// freePlace gives a place of the send queue back that a completion has freed: to the Write, if that
// waits for one.
func (e *Endpoint) freePlace() {
	if !e.credit.late.Load() || !e.tellPeer(true) {
		e.room <- struct{}{}
	}
}

// giveBack gives places back that were not used. The caller has the turn to send.
func (e *Endpoint) giveBack(places int) {
	for range places {
		e.room <- struct{}{}
	}
	if e.credit.late.Load() {
		e.tellPeer(false)
	}
}
