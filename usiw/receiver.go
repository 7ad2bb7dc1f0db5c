// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/verbs"
)

// readBytes is the size of a receive buffer and so the most that one system call can receive. It
// must hold the largest FPDU, and is much larger so that incomplete FPDUs seldom have to be moved
// to its start.
const readBytes = 256 << 10

// An incomplete FPDU of up to smallPart bytes is copied out of the buffer until the rest arrives. A
// larger one keeps the buffer, unless maxPartial connections of the NIC already do.
const (
	smallPart  = 512
	maxPartial = 64
)

// receiver is the receive side of a connection. The goroutine that holds mu has the receive role:
// it parses, places, completes and queues responses. It never waits.
type receiver struct {
	mu sync.Mutex // taken before q.mu

	buf     *[readBytes]byte // nil while it holds no unread bytes
	r, w    int              // buf[r:w] is unread
	iov     [1][]byte
	part    []byte // the unread bytes after buf was returned to the pool
	kept    bool   // buf is kept, and counted in device.partial
	waits   bool   // part is entered as stall; part is nil if stall was evicted
	stall   stall  // guarded by q.mu
	reply   bool   // there may be something to send
	heard   bool   // the first FPDU was handled
	refused bool   // a message was invalid; later ones are dropped

	access *verbs.AccessError // the access refused to the invalid message; nil for another fault
	why    error              // the reason for status

	no [4]uint32 // the next MSN on each queue

	// The Send message being received, and its receive request.
	open   bool
	recv   recvEntry
	got    uint64
	status verbs.WCStatus // of recv, if the message was invalid

	// The RDMA Write before an immediate: the length so far, and whether a message of another kind
	// has followed it.
	writing bool
	wrote   bool
	written uint64

	readGot uint32 // bytes of the oldest Read placed so far
	opening bool   // the Read that opened the connection is still unanswered

	pos    uint64    // stream position of the first unread byte
	partAt uint64    // pos of the incomplete FPDU last set aside
	since  time.Time // when that FPDU was first set aside
}

var readPool = sync.Pool{New: func() any { return new([readBytes]byte) }}

func (r *receiver) init(q *qp, agreed *setup) {
	r.no = [4]uint32{1, 1, 1, 1}
	r.opening = agreed.openedBy == RTRRead
	r.recv.sgl = make([]verbs.SGE, 0, q.rq.maxSGE)
}

// flush completes the receive request of an incomplete message. The caller holds mu and q.mu.
func (r *receiver) flush(q *qp) {
	if !r.open {
		return
	}
	r.open = false
	if r.status == verbs.WCSuccess {
		r.status = verbs.WCWRFlushErr
	}
	if r.why != nil {
		q.blame(r.recv.id, r.status, verbs.WCRecv, r.why)
	}
	q.recvCQ.push(&verbs.WC{ID: r.recv.id, Status: r.status, QPNum: q.num}, false)
}

// receive takes the receive role and handles the bytes that have arrived. more reports that there
// may be further bytes.
func (c *conn) receive() (a arrivals, more bool) {
	c.rx.mu.Lock()
	defer c.rx.mu.Unlock()
	return c.receiveLocked()
}

// poll is like receive, but does nothing if another goroutine holds the role.
func (c *conn) poll() (a arrivals) {
	if c.rx.mu.TryLock() {
		a, _ = c.receiveLocked()
		c.rx.mu.Unlock()
	}
	return a
}

// receiveLocked is receive for a caller that holds the role.
func (c *conn) receiveLocked() (a arrivals, more bool) {
	r := &c.rx
	c.unpark()
	defer c.park()
	for a.bytes < turnBytes {
		if c.dead.Load() {
			return a, false
		}
		r.iov[0] = r.buf[r.w:]
		n, err := c.s.read(r.iov[:])
		if err != nil {
			c.ended(err)
			return a, false
		}
		a.conns = 1
		a.bytes += n
		c.tap(c.tapTime(), false, r.iov[:], n)
		c.received.Add(uint64(n))
		r.w += n
		short := r.w < len(r.buf)
		c.consume()
		if r.reply || r.wrote {
			a.asked = 1
		}
		if r.reply {
			r.reply = false
			c.kick()
		}
		if short {
			return a, true
		}
	}
	return a, true
}

// park returns the receive buffer to the pool while there is nothing to receive. An incomplete FPDU
// stays in the buffer, unless it is small or many connections have incomplete FPDUs; then it is
// copied, so that slow peers tie up little memory. A copy that is not small is entered in the NIC's
// stall account.
func (c *conn) park() {
	r := &c.rx
	left := r.w - r.r
	if left > 0 && !c.dead.Load() {
		if left > smallPart && c.dev.partial.Add(1) <= maxPartial {
			r.kept = true
			return
		}
		if left > smallPart {
			c.dev.partial.Add(-1)
			c.setAside(r.buf[r.r:r.w])
		} else {
			r.part = append([]byte(nil), r.buf[r.r:r.w]...)
		}
	}
	readPool.Put(r.buf)
	r.buf = nil
}

// setAside copies an incomplete FPDU if the stall account has room for it; otherwise it ends the
// connection.
func (c *conn) setAside(part []byte) {
	r, n := &c.rx, int64(len(part))
	if r.since.IsZero() || r.partAt != r.pos {
		r.since, r.partAt = time.Now(), r.pos
	}
	over := c.dev.stalls.reserve(n, r.since)
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	switch {
	case over > 0:
		c.failLocked(c.dev.stalls.exceeded("peer has not sent the rest of an FPDU", over, r.since), nil)
	case c.dead.Load():
		c.dev.stalls.give(n)
	default:
		r.part, r.waits = append([]byte(nil), part...), true
		c.dev.stalls.enter(&r.stall, n, r.since)
	}
}

// letGo releases an incomplete FPDU. The caller holds the receive role and q.mu.
func (c *conn) letGo() {
	r := &c.rx
	if r.kept {
		r.kept = false
		c.dev.partial.Add(-1)
		readPool.Put(r.buf)
		r.buf = nil
	}
	c.dev.stalls.leave(&r.stall)
	r.part, r.waits = nil, false
}

// unpark reverses park.
func (c *conn) unpark() {
	r := &c.rx
	if r.kept {
		r.kept = false
		c.dev.partial.Add(-1)
	}
	if r.waits {
		r.waits = false
		c.q.mu.Lock()
		c.dev.stalls.leave(&r.stall)
		c.q.mu.Unlock()
	}
	if r.buf == nil {
		r.buf = readPool.Get().(*[readBytes]byte)
		r.r, r.w = 0, copy(r.buf[:], r.part)
		r.part = nil
	}
}

// ended handles an error from read.
func (c *conn) ended(err error) {
	if err == errWouldBlock {
		return
	}
	c.atEOF.Store(true)
	switch {
	case err == io.EOF && c.rx.r != c.rx.w:
		c.fail(io.ErrUnexpectedEOF, nil)
	case errors.Is(err, io.EOF):
		c.fail(io.EOF, nil)
	default:
		c.broken(err)
	}
}

// consume handles all complete FPDUs in the buffer (RFC 5044 section 4.1).
func (c *conn) consume() {
	r := &c.rx
	need := 0
	for !c.dead.Load() && !r.refused {
		var fpdu []byte
		var f fault
		if fpdu, need, f = c.frame(r.buf[r.r:r.w]); f != (fault{}) {
			c.refuse(f, nil)
			continue
		}
		if fpdu == nil {
			break
		}
		first := !r.heard
		if first {
			c.endHold()
		}
		ulpdu := fpdu[mpa.LengthLen : mpa.LengthLen+int(binary.BigEndian.Uint16(fpdu))]
		if f, ok := c.segment(ulpdu); !ok {
			c.refuse(f, ulpdu)
			continue
		}
		if first {
			c.hear()
		}
		r.r += need
		r.pos += uint64(need)
	}
	switch {
	case r.refused, r.r == r.w:
		r.r, r.w = 0, 0
	case len(r.buf)-r.r < need:
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
}

// frame returns the FPDU at the start of b after checking its CRC. need is the number of stream
// bytes that the FPDU occupies, or that are needed to learn its length. If b has fewer, fpdu is
// nil.
func (c *conn) frame(b []byte) (fpdu []byte, need int, f fault) {
	prefix := 0
	if c.markIn {
		prefix = mpa.MarkedPrefix(c.rx.pos)
	}
	if need = prefix + mpa.LengthLen; len(b) < need {
		return nil, need, f
	}
	n := int(binary.BigEndian.Uint16(b[prefix:]))
	if n < ddp.TaggedLen {
		return nil, need, faultSize
	}
	need = mpa.FPDULen(n)
	if c.markIn {
		need = mpa.MarkedLen(c.rx.pos, need)
	}
	if len(b) < need {
		return nil, need, f
	}
	b = b[:need]
	if c.crc && mpa.CRC(0, b[:need-mpa.CRCLen]) != mpa.GetCRC(b[need-mpa.CRCLen:]) {
		return nil, need, faultCRC
	}
	if c.markIn {
		var err error
		if b, err = mpa.StripMarked(b[:0], b, c.rx.pos); err != nil {
			return nil, need, faultMarker
		}
	}
	return b, need, f
}

// hear records that the peer's first FPDU was handled.
func (c *conn) hear() {
	c.rx.heard = true
	if c.rtr {
		c.rx.wrote = false // the Write that opens a connection does not belong to an immediate
	}
	if !c.dead.Load() {
		close(c.spoken)
	}
}
