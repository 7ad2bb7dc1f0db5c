// SPDX-License-Identifier: BSD-3-Clause

package rsocket

// inbound is the receiving half of a stream: what the peer may send, what it has sent, and what the
// program has read. It knows numbers only. Sequence numbers count messages that take a credit,
// modulo 65,536.
//
//	consumed <= received <= granted <= consumed + credits
//
// The ring has two halves. It is, from tail on: unread bytes, then left bytes of the entry that the
// peer fills, then a spare entry behind it, then freed bytes, which are to be published.
//
// The ring is the first part of the receive buffer, and doubles when the peer has more to send than
// it holds (grow). So a connection with little to do uses little of a large buffer.
type inbound struct {
	half int // bytes of an entry
	top  int // the most that half may become
	// the peer has lacked an entry, or has filled one by one message, since an entry was published
	// at offset 0
	tight   bool
	credits uint16 // the most that is granted
	places  int    // for mappings

	granted  uint16 // the limit that the peer was told
	received uint16
	consumed uint16
	due      uint16 // when consumed reaches it, a limit is granted

	tail   int // where the next byte is read
	unread int
	left   int // published and not filled, in the entry that the peer fills
	spare  int // published entries behind that one; they have half bytes
	freed  int // read and not published
	next   int // where the next entry begins

	lens  []uint32 // a ring: lengths of messages that are not consumed completely
	first uint16   // the oldest of them
	count int
	ended bool // SHUTDOWN or DISCONNECT came
}

// firstHalf is the first value of half for a buffer, which is even.
func firstHalf(buffer int) int {
	half := buffer / 2
	for half%2 == 0 && half/2 >= DefaultBuffer/2 {
		half /= 2
	}
	return half
}

// init describes a ring of two halves, of which the private data publish the first one.
func (in *inbound) init(half, top int, credits uint16, places int) {
	*in = inbound{half: half, top: top, credits: credits, places: places, granted: credits, due: credits / 2,
		left: half, freed: half, next: half, lens: make([]uint32, credits)}
}

// take counts a message that takes a credit.
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

// data notes a message of n bytes.
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

// mapping notes a mapping, which is consumed at once. rsocket.c does not count them as consumed,
// and so loses a credit with each.
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

// run returns where the next unread bytes are, and how many of them follow each other in memory.
func (in *inbound) run() (at, n int) {
	return in.tail, min(in.unread, 2*in.half-in.tail)
}

// consume notes that n unread bytes have been read.
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

// grantDue reports whether the peer should be told a new limit, and whether an entry is to be
// published with it. The thresholds are those of rsocket.c: half of the ring, or half of the
// credits.
func (in *inbound) grantDue() (due, publish bool) {
	if in.ended {
		return false, false
	}
	publish = in.freed >= in.half
	return publish || int16(in.consumed-in.due) >= 0, publish
}

// publish notes that an entry is published, and returns where it begins and how long it is. As many
// bytes are freed.
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

// grow doubles the ring when the next entry would be at its start. Instead it goes behind the end,
// where nothing has been before, and the one after it to the start. So no byte moves, and bytes
// that are not read stay in one run with those that follow.
func (in *inbound) grow() {
	in.next = 2 * in.half
	if in.unread+in.left == 0 { // otherwise these are right before the old end, because half of the ring is freed
		in.tail = in.next
	}
	in.freed += 2 * in.half
	in.half *= 2
}

// grant notes that a message with a new limit is sent, and returns it.
func (in *inbound) grant() (limit uint16) {
	in.granted = in.consumed + in.credits
	in.due = in.consumed + in.credits/2
	return in.granted
}
