// SPDX-License-Identifier: BSD-3-Clause

package rsocket

// inbound is the receiving half of a stream: what the peer may send, what it has sent, and what the
// program has read. It does only arithmetic and touches no memory or device. Sequence numbers count
// messages that take a credit, modulo 65,536.
//
//	consumed <= received <= granted <= consumed + credits
//
// The ring has two halves. Starting at tail, it holds unread bytes, then the left bytes of the
// entry that the peer is filling, then possibly a spare entry, then freed bytes that are to be
// published.
//
// The ring is the first part of the receive buffer and doubles when the peer has more to send than
// it holds (grow). A connection with little traffic therefore uses little of a large buffer.
type inbound struct {
	half int // bytes of an entry
	top  int // the maximum of half
	// since an entry was published at offset 0, the peer lacked an entry or filled one with one
	// message
	tight   bool
	credits uint16 // the most that may be granted
	places  int    // for mappings

	granted  uint16 // the limit last sent to the peer
	received uint16
	consumed uint16
	due      uint16 // when consumed reaches it, a new limit is granted

	tail   int // offset of the next byte to read
	unread int
	left   int // published and not filled, in the entry that the peer is filling
	spare  int // published entries after that one, of half bytes each
	freed  int // read and not published
	next   int // offset of the next entry

	lens  []uint32 // a ring: lengths of messages not completely consumed
	first uint16   // index of the oldest one
	count int
	ended bool // SHUTDOWN or DISCONNECT arrived
}

// firstHalf returns the initial value of half for a buffer of the given, even size.
func firstHalf(buffer int) int {
	half := buffer / 2
	for half%2 == 0 && half/2 >= DefaultBuffer/2 {
		half /= 2
	}
	return half
}

// init initializes a ring of two halves. The private data publish the first one.
func (in *inbound) init(half, top int, credits uint16, places int) {
	*in = inbound{half: half, top: top, credits: credits, places: places, granted: credits, due: credits / 2,
		left: half, freed: half, next: half, lens: make([]uint32, credits)}
}

// take counts a message that consumes a credit.
func (in *inbound) take() error {
	if in.ended {
		return violation(DataAfterEnd, uint64(in.received), 0)
	}
	if in.received == in.granted {
		return violation(Uncredited, uint64(in.received), uint64(in.granted))
	}
	in.received++
	return nil
}

// data records a message of n bytes.
func (in *inbound) data(n uint32) error {
	if n == 0 {
		return violation(EmptyData, 0, 1)
	}
	if uint64(n) > uint64(in.left) {
		return violation(TooMuchData, uint64(n), uint64(in.left))
	}
	if err := in.take(); err != nil {
		return err
	}
	in.lens[(int(in.first)+in.count)%len(in.lens)] = n
	in.count++
	in.unread += int(n)
	in.left -= int(n)
	in.tight = in.tight || int(n) == in.half
	if in.left == 0 && in.spare > 0 {
		in.spare--
		in.left = in.half
	}
	return nil
}

// mapping records a mapping, which is consumed immediately. rsocket.c does not count mappings as
// consumed, and so loses a credit with each.
func (in *inbound) mapping(index uint32) error {
	if uint64(index) >= uint64(in.places) {
		return violation(BadIndex, uint64(index), uint64(in.places))
	}
	if err := in.take(); err != nil {
		return err
	}
	in.consumed++
	return nil
}

// run returns the offset of the next unread bytes and how many of them are contiguous.
func (in *inbound) run() (at, n int) {
	return in.tail, min(in.unread, 2*in.half-in.tail)
}

// consume records that n unread bytes were read.
func (in *inbound) consume(n int) {
	in.tail = (in.tail + n) % (2 * in.half)
	in.unread -= n
	in.freed += n
	for n > 0 {
		l := &in.lens[in.first]
		if uint32(n) < *l {
			*l -= uint32(n)
			return
		}
		n -= int(*l)
		in.first = uint16((int(in.first) + 1) % len(in.lens))
		in.count--
		in.consumed++
	}
}

// grantDue reports whether a new limit should be sent to the peer, and whether an entry should be
// published with it. The thresholds are those of rsocket.c: half of the ring, or half of the
// credits.
func (in *inbound) grantDue() (due, publish bool) {
	if in.ended {
		return false, false
	}
	publish = in.freed >= in.half
	return publish || int16(in.consumed-in.due) >= 0, publish
}

// publish records that an entry is published and returns its offset and length. At least that many
// bytes must be freed.
func (in *inbound) publish() (at, n int) {
	in.tight = in.tight || in.left == 0
	if in.next == 0 {
		if in.tight && 2*in.half <= in.top {
			in.grow()
		}
		in.tight = false
	}
	at, n = in.next, in.half
	in.freed -= n
	in.next = (at + n) % (2 * n)
	if in.left == 0 {
		in.left = n
	} else {
		in.spare++
	}
	return at, n
}

// grow doubles the ring when the next entry would be at its start. Instead, that entry goes after
// the old end, where there was nothing before, and the following one to the start. No bytes move,
// and unread bytes stay contiguous with those that follow them.
func (in *inbound) grow() {
	in.next = 2 * in.half
	if in.unread+in.left == 0 { // otherwise these are right before the old end, because half of the ring is freed
		in.tail = in.next
	}
	in.freed += 2 * in.half
	in.half *= 2
}

// grant records that a message with a new limit is sent, and returns the limit.
func (in *inbound) grant() (limit uint16) {
	in.granted = in.consumed + in.credits
	in.due = in.consumed + in.credits/2
	return in.granted
}
