// SPDX-License-Identifier: BSD-3-Clause

package rsocket

// outbound is the sending half of a stream: where the peer wants data, how many messages it
// accepts, and the ring from which they are sent. It does only arithmetic and touches no memory or
// device.
//
//	sent <= limit <= sent + credits     modulo 65,536
type outbound struct {
	credits uint16 // the size of the peer's queue
	margin  uint16 // part of the limit left unused
	limit   uint16 // messages that take a credit may be sent up to this number
	sent    uint16

	entries [tableEntries]entry // published by the peer and not filled; cur is the one filled first
	cur     int
	known   int // how many of them are valid

	size int // of the ring
	top  int // the maximum of size
	head int // where the next bytes go
	used int // bytes posted and not completed
	most int // bytes of a message: half of the ring, so that one half can be filled while the other is sent
}

// firstSize returns the initial size for a send buffer.
func firstSize(buffer int) int {
	for buffer%2 == 0 && buffer/2 >= DefaultBuffer {
		buffer /= 2
	}
	return buffer
}

// maxMargin is how many messages without credit rsocket.c can send before it checks for completions
// (see the package comment).
const maxMargin = 8

// init applies the peer's private data and the size of the ring.
func (o *outbound) init(peer *connData, iwarp bool, size, top int) {
	*o = outbound{credits: peer.credits, limit: peer.credits, top: top}
	o.resize(size)
	if iwarp {
		o.margin = min(maxMargin, peer.credits/4)
	}
	o.entries[0], o.known = peer.buffer, 1
}

// grant sets a new limit, the low 16 bits of data.
func (o *outbound) grant(data uint32) error {
	limit := uint16(data)
	// Both limits are at most credits ahead of sent. This distinguishes a lower limit from a higher
	// one.
	ahead, was := limit-o.sent, o.limit-o.sent
	if ahead > o.credits || ahead < was {
		return violation(CreditsTakenBack, uint64(limit), uint64(o.limit))
	}
	o.limit = limit
	return nil
}

// wanted reports whether there is room for another entry from the peer.
func (o *outbound) wanted() bool { return o.known < tableEntries }

// publish adds an entry that the peer published.
func (o *outbound) publish(e entry) error {
	if err := e.check(); err != nil {
		return err
	}
	o.entries[(o.cur+o.known)%tableEntries] = e
	o.known++
	return nil
}

// credit reports whether a message that consumes a credit may be sent.
func (o *outbound) credit() bool { return o.limit-o.sent > o.margin }

func (o *outbound) resize(size int) { o.size, o.most = size, min(maxMessage, max(size/2, 1)) }

// grow doubles the ring after a message of the maximum size. No bytes move.
func (o *outbound) grow() {
	switch {
	case 2*o.size > o.top:
		return
	case o.head == 0: // the bytes in the ring are right before its end
		o.head = o.size
	case o.head < o.used: // they wrap around its end; after another message they may not
		return
	}
	o.resize(2 * o.size)
}

// rewind moves the head to the start if the ring is empty, so that a connection with little to send
// uses little memory. It must not be called while the caller fills space that room returned.
func (o *outbound) rewind() {
	if o.used == 0 {
		o.head = 0
	}
}

// room returns the offset in the ring of the next message and its maximum length, 0 if none may be
// sent.
func (o *outbound) room() (at, n int) {
	if o.known == 0 || !o.credit() {
		return o.head, 0
	}
	n = min(o.size-o.used, o.size-o.head, o.most)
	return o.head, int(min(uint64(n), uint64(o.entries[o.cur].length)))
}

// take counts a message of the first n bytes of room and returns the peer's memory that they go to.
func (o *outbound) take(n int) (to entry) {
	e := &o.entries[o.cur]
	to = entry{addr: e.addr, key: e.key, length: uint32(n)}
	e.addr += uint64(n)
	if e.length -= uint32(n); e.length == 0 {
		o.cur = (o.cur + 1) % tableEntries
		o.known--
	}
	o.head = (o.head + n) % o.size
	o.used += n
	o.sent++
	if n == o.most {
		o.grow()
	}
	return to
}

// hold reserves the first n bytes of room for a Write that is not a message.
func (o *outbound) hold(n int) {
	o.head = (o.head + n) % o.size
	o.used += n
}

// free releases the oldest n bytes, which were sent.
func (o *outbound) free(n int) { o.used -= n }
