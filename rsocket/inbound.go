// SPDX-License-Identifier: BSD-3-Clause

package rsocket

// inbound is the receiving half of a stream: what the peer may send, what it has sent, and what the program has read. It knows
// numbers only. Sequence numbers count messages that take a credit, modulo 65,536.
//
//	consumed <= received <= granted <= consumed + credits
//
// The ring of size bytes is, from tail on: unread bytes, then left bytes of the entry that the peer fills, then spare bytes of
// entries behind it, then freed bytes, which are to be published.
type inbound struct {
	half    int    // bytes of an entry; the ring has two
	credits uint16 // the most that is granted
	places  int    // for mappings

	granted  uint16 // the limit that the peer was told
	received uint16
	consumed uint16
	due      uint16 // when consumed reaches it, a limit is granted

	tail   int // where the next byte is read
	unread int
	left   int // published and not filled, in the entry that the peer fills
	spare  int // published entries behind that one
	freed  int // read and not published
	next   int // where the next entry begins

	lens  []uint32 // a ring: lengths of messages that are not consumed completely
	first uint16   // the oldest of them
	count int
	ended bool // SHUTDOWN or DISCONNECT came
}

// init describes a buffer of two halves, of which the private data publish the first one.
func (in *inbound) init(half int, credits uint16, places int) {
	*in = inbound{half: half, credits: credits, places: places, granted: credits, due: credits / 2, left: half, freed: half, next: half,
		lens: make([]uint32, credits)}
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
	if in.left == 0 && in.spare > 0 {
		in.spare--
		in.left = in.half
	}
	return nil
}

// mapping notes a mapping, which is consumed at once. rsocket.c does not count them as consumed, and so loses a credit with each.
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

// grantDue reports whether the peer should be told a new limit, and whether an entry of half bytes at offset at is to be published
// with it. The thresholds are those of rsocket.c: half of the buffer, or half of the credits.
func (in *inbound) grantDue() (due, publish bool, at int) {
	if in.ended {
		return false, false, 0
	}
	if in.freed >= in.half {
		return true, true, in.next
	}
	return int16(in.consumed-in.due) >= 0, false, 0
}

// grant notes that the message that grantDue asked for is sent, and returns its limit.
func (in *inbound) grant() (limit uint16) {
	if in.freed >= in.half {
		in.freed -= in.half
		in.next = (in.next + in.half) % (2 * in.half)
		if in.left == 0 {
			in.left = in.half
		} else {
			in.spare++
		}
	}
	in.granted = in.consumed + in.credits
	in.due = in.consumed + in.credits/2
	return in.granted
}
