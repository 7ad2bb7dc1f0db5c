// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// What a peer may have outstanding, besides one message for each receive advertised to it. This
// determines the number of receive slots. A slot is reposted before the effects of its message
// become visible, so slots never run out. Each bound is checked when a message arrives; a peer that
// exceeds one loses the connection.
//
//	window  Atomics: the next one needs an Answer
//	window  Answers: one for each Atomic of ours
//	parts   Parts: the next one needs the peer's count; set in the hello
//	1       request for an acknowledgement, as a Credit: the next one needs the answer to the last
//	1       Ack: the answer to our own request
//	1       hello
//	1       Bye, or Refused
const (
	window = 16

	// All long messages are sent in Parts if receives cannot be opened; then more are allowed.
	fewParts  = 4
	manyParts = 32
)

// parts returns how many Parts a peer may have outstanding.
func (c *vcontext) parts() int {
	if c.opener != nil {
		return fewParts
	}
	return manyParts
}

func (c *vcontext) ownSlots() int { return 2*window + c.parts() + 4 }

// ownSends is the number of send slots and inner queue entries reserved for the engine: for
// Answers, a request for an acknowledgement, an Ack, the hello and Bye. These messages therefore
// never wait for the program's requests, which may in turn be waiting for the peer.
const ownSends = window + 4

// Lengths in bytes.
const (
	mostEager  = 4096    // the longest message that is copied into a receive
	leastEager = 512     //
	leastPart  = 64      // smallest threshold accepted from the peer
	slotMemory = 1 << 20 // memory for receive slots above which the eager size is reduced
	advertRoom = 256     // in a receive slot, in addition to header and payload
	sendSlot   = 2048    // length of a send slot: header, adverts, and inline data or an atomic
)

// slots is the registered memory of a QP in which messages arrive and from which headers are sent.
type slots struct {
	mr    *verbs.MR
	recvs int     // number of receive slots; they come first
	eager uint32  // payload bytes of a receive slot
	free  []int32 // free send slots
}

func newSlots(pd *verbs.PD, recvs, maxSend int) (s slots, err error) {
	s.recvs = recvs
	s.eager = uint32(min(max(slotMemory/s.recvs, leastEager), mostEager)) &^ 63
	sends := min(maxSend, 64) + ownSends
	if s.mr, err = pd.AllocMR(s.recvs*s.recvLen()+sends*sendSlot, verbs.AccessLocalWrite); err != nil {
		return s, err
	}
	for i := range sends {
		s.free = append(s.free, int32(i))
	}
	return s, nil
}

func (s *slots) recvLen() int { return wire.HeaderLen + int(s.eager) + advertRoom }

func (s *slots) recvSGE(i int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(i*s.recvLen()), Length: uint32(s.recvLen()), LKey: s.mr.LKey()}
}

// received returns the message of n bytes in receive slot i.
func (s *slots) received(i int, n uint32) []byte { return s.mr.Bytes()[i*s.recvLen():][:n] }

// take returns a send slot. One is free: roomFor or maySpeak was checked.
func (s *slots) take() int32 {
	last := len(s.free) - 1
	i := s.free[last]
	s.free = s.free[:last]
	return i
}

func (s *slots) give(i int32) { s.free = append(s.free, i) }

func (s *slots) sendOffset(i int32) int { return s.recvs*s.recvLen() + int(i)*sendSlot }

// sendBytes returns an empty slice backed by a send slot.
func (s *slots) sendBytes(i int32) []byte { return s.mr.Bytes()[s.sendOffset(i):][:0:sendSlot] }

func (s *slots) sendSGE(i int32, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(s.sendOffset(i)), Length: uint32(n), LKey: s.mr.LKey()}
}

// fill posts all receive slots.
func (q *qp) fill() error {
	for i := range q.slots.recvs {
		if err := q.repost(i); err != nil {
			return fmt.Errorf("receive slot %d of %d: %w", i, q.slots.recvs, err)
		}
	}
	return nil
}

// slotBit marks the IDs of receive slots in the inner queue.
const slotBit = 1 << 31

// repost posts a receive slot. The caller holds mu.
func (q *qp) repost(slot int) error {
	q.slotSGL[0] = q.slots.recvSGE(slot)
	q.slotWR[0] = verbs.RecvWR{ID: q.place | slotBit | uint64(slot), SGL: q.slotSGL[:]}
	if _, err := q.in.PostRecv(q.slotWR[:]); err != nil {
		return err
	}
	q.posted++
	return nil
}
