// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"fmt"
	"math"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/siw/ddp"
	"github.com/goverbs/goverbs/siw/mpa"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// responseBurst is how many responses go out before a waiting request gets its turn.
const responseBurst = 16

// inlineBatches is how many batches a poster or the receive role sends before a goroutine goes on for it.
const inlineBatches = 16

// response is what the peer is owed: the data of a Read, or the result of an atomic that has been performed.
type response struct {
	atomic bool
	msn    uint32 // of the request on queue 1
	read   rdmap.ReadRequest
	result rdmap.AtomicResponse
}

// task is what the send role is in the middle of.
type task uint8

const (
	taskNone     task = iota
	taskRequest       // entry, from offset off
	taskImm           // entry: the Immediate Data behind a Write
	taskResponse      // resp, from offset off
)

// sender is the send side of a connection. The send role (busy) is taken under q.mu and never waits: a holder that finds
// the socket full leaves the rest in the batch and lets one goroutine per connection wait for room.
type sender struct {
	busy    bool      // mu: somebody holds the role
	again   bool      // mu: something was queued meanwhile
	blocked bool      // mu: the socket is full
	waiter  bool      // mu: waitWritable runs
	hold    bool      // mu: the peer must speak first
	idle    sync.Cond // on q.mu: busy has become false

	responses   ring[response] // mu
	outstanding int            // mu: Reads and atomics without an answer
	reads       ring[uint64]   // mu: positions in the send queue of the Reads among them
	atomics     ring[uint64]   // mu: of the atomics
	sentTo      uint64         // mu: octets of the stream that are in the socket

	// The send role's.
	batch  *batch
	task   task
	entry  *sendEntry
	resp   response
	off    uint32
	burst  int
	built  uint64    // octets of the stream that have been put into batches
	sendNo [2]uint32 // the last MSN on queues 0 and 1
	respNo uint32    // the last MSN on queue 3
}

func (t *sender) init(q *qp, agreed *setup) {
	t.idle.L = &q.mu
	t.hold = agreed.hold
	t.built = uint64(len(agreed.opening))
	t.sentTo = t.built
	switch agreed.openedBy {
	case RTRRead:
		t.sendNo[1], t.outstanding = 1, 1
	case RTRSend:
		t.sendNo[0] = 1
	}
}

// mulpdu returns the largest ULPDU for a stream whose segments have the given size, 0 = not known.
func (d *device) mulpdu(segment int, markers bool) int {
	if segment <= 0 || segment > d.cfg.MTU {
		segment = d.cfg.MTU
	}
	return mpa.MULPDU(segment, markers)
}

// kick sends what is queued, as far as the socket has room. It never waits.
func (c *conn) kick() {
	c.q.mu.Lock()
	if c.tx.busy || c.tx.blocked || c.dead.Load() {
		c.tx.again = true
		c.q.mu.Unlock()
		return
	}
	c.tx.busy = true
	c.q.mu.Unlock()
	if !c.pump(inlineBatches) {
		c.handOver()
	}
}

// handOver gives the send role to a goroutine: the holder has other things to do, and others keep adding to the queue.
func (c *conn) handOver() {
	c.q.mu.Lock()
	if !c.dead.Load() {
		c.workers.Go(func() { c.pump(math.MaxInt) })
		c.q.mu.Unlock()
		return
	}
	c.q.mu.Unlock()
	c.leave()
}

// pump sends until nothing is left or the socket is full, and leaves the send role, which the caller holds. After the given
// number of batches it reports false, and the role stays the caller's.
func (c *conn) pump(batches int) bool {
	t := &c.tx
	for ; batches > 0; batches-- {
		if t.batch == nil {
			t.batch = batchPool.Get().(*batch)
		}
		if t.batch.empty() {
			t.batch.reset()
			c.build(t.batch)
			t.batch.closePiece()
		}
		if t.batch.empty() {
			if c.leave() {
				return true
			}
			continue
		}
		if c.dead.Load() {
			return c.leave()
		}
		n, err := c.s.write(t.batch.unsent())
		c.tap(true, t.batch.unsent(), n)
		t.batch.advance(n)
		c.settle(n)
		switch {
		case err == errWouldBlock:
			c.block()
			return true
		case err != nil:
			c.fail(err, nil)
			return c.leave()
		}
	}
	return false
}

// leave gives up the send role; it reports false, and the role stays the caller's, if something was queued meanwhile.
func (c *conn) leave() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	if t.again && !c.dead.Load() {
		t.again = false
		return false
	}
	if t.batch != nil && t.batch.empty() {
		t.batch.reset()
		batchPool.Put(t.batch)
		t.batch = nil
	}
	t.busy = false
	t.idle.Broadcast()
	return true
}

// block gives up the send role because the socket is full, and has a goroutine wait for room.
func (c *conn) block() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	t.busy = false
	t.idle.Broadcast()
	if c.dead.Load() {
		return
	}
	t.blocked = true
	if !t.waiter {
		t.waiter = true
		c.workers.Go(c.waitRoom)
	}
}

// waitRoom goes on sending when the socket has room, until it no longer fills up.
func (c *conn) waitRoom() {
	t := &c.tx
	err := c.s.waitWritable(func() bool {
		c.q.mu.Lock()
		if c.dead.Load() {
			c.q.mu.Unlock()
			return true
		}
		t.blocked, t.busy, t.again = false, true, false
		c.q.mu.Unlock()
		c.pump(math.MaxInt)
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		// If the socket has been filled again, by us or by somebody else since, the wait is ours.
		t.waiter = t.blocked && !c.dead.Load()
		return !t.waiter
	}, c.dev.cfg.PeerTimeout)
	if err == errStalled {
		err = fmt.Errorf("peer has taken no data for %v: %w", c.dev.cfg.PeerTimeout, syscall.ETIMEDOUT)
	}
	if err != nil {
		c.fail(err, nil)
	}
}

// settle notes that n more octets are in the socket: requests that are sent entirely, and need no answer, are complete.
func (c *conn) settle(n int) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.tx.sentTo += uint64(n)
	c.settleLocked()
}

func (c *conn) settleLocked() {
	sq := &c.q.sq
	for sq.sentTo < sq.next {
		e := sq.at(sq.sentTo)
		if e.end > c.tx.sentTo {
			break
		}
		e.sent = true
		sq.sentTo++
	}
	c.q.retire()
}

// build fills a batch.
func (c *conn) build(b *batch) {
	for more := true; more && b.room() && (c.tx.task != taskNone || c.begin()); {
		switch {
		case c.tx.task == taskResponse && c.tx.resp.atomic:
			c.atomicResponse(b)
		case c.tx.task == taskResponse:
			more = c.readResponse(b)
		case c.tx.task == taskImm:
			c.immediate(b)
		default:
			more = c.request(b)
		}
	}
}

// begin takes the next thing to send: a response before a request, but not for ever. It reports false if there is none.
func (c *conn) begin() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	if c.dead.Load() || t.hold {
		return false
	}
	if t.responses.len() > 0 && t.burst < responseBurst {
		t.burst++
		return c.beginResponse()
	}
	t.burst = 0
	if c.beginRequest() {
		return true
	}
	return t.responses.len() > 0 && !c.dead.Load() && c.beginResponse()
}

func (c *conn) beginResponse() bool {
	op := rdmap.OpReadResponse
	if c.tx.responses.front().atomic {
		op = rdmap.OpAtomicResponse
	}
	if err := c.buildable(op); err != nil {
		t := &termination{fault: faultLocal}
		c.failLocked(fmt.Errorf("%v: %w: %w", op, err, t.err()), t)
		return false
	}
	c.tx.task, c.tx.resp, c.tx.off = taskResponse, *c.tx.responses.front(), 0
	return true
}

// buildable asks the test hook.
func (c *conn) buildable(op rdmap.Opcode) error {
	if c.dev.cfg.Hooks.Build == nil {
		return nil
	}
	return c.dev.cfg.Hooks.Build(op)
}

// endResponse frees the place of a response that has been built.
func (c *conn) endResponse() {
	c.q.mu.Lock()
	c.tx.responses.pop()
	c.q.mu.Unlock()
	c.tx.task = taskNone
}

// beginRequest takes the next request that may start, doing those that send nothing on the way. The caller holds q.mu.
func (c *conn) beginRequest() bool {
	t, sq := &c.tx, &c.q.sq
	for sq.next < sq.tail {
		e := sq.at(sq.next)
		if e.flags&verbs.SendFence != 0 && t.outstanding > 0 {
			return false
		}
		if e.awaitsAnswer() && t.outstanding >= c.ord && c.ord > 0 {
			return false
		}
		if e.status == verbs.WCSuccess {
			e.status = c.verify(e)
		}
		if e.status != verbs.WCSuccess {
			// The requests before it complete first; whoever completes the last of them comes here again.
			if sq.head == sq.next {
				c.failRequest(e, e.status)
			}
			return false
		}
		at := sq.next
		sq.next++
		if e.isLocal() {
			e.end = t.built
			c.settleLocked()
			continue
		}
		e.end = math.MaxUint64
		switch {
		case e.awaitsAnswer():
			t.outstanding++
			if e.isAtomic() {
				t.atomics.push(at)
			} else {
				t.reads.push(at)
			}
			t.sendNo[1]++
			e.msn = t.sendNo[1]
		case e.op != verbs.WRRDMAWrite && e.op != verbs.WRRDMAWriteWithImm:
			t.sendNo[0]++
			e.msn = t.sendNo[0]
		}
		t.task, t.entry, t.off = taskRequest, e, 0
		if e.op == verbs.WRImmData {
			t.task = taskImm
		}
		return true
	}
	return false
}

// verify judges a request at the time at which its turn has come, and does it if it is local.
func (c *conn) verify(e *sendEntry) verbs.WCStatus {
	if !e.isLocal() && c.buildable(e.rdmapOpcode()) != nil {
		return verbs.WCLocQPOpErr
	}
	switch {
	case e.op == verbs.WRBindMW:
		if !e.bind.bind(c.q) {
			return verbs.WCMWBindErr
		}
	case e.op == verbs.WRLocalInv:
		if c.dev.invalidate(c.q, e.invalidate) != accepted {
			return verbs.WCMWBindErr
		}
	case e.awaitsAnswer() && c.ord == 0:
		return verbs.WCLocQPOpErr
	case e.flags&verbs.SendInline == 0:
		need := verbs.AccessFlags(0)
		if e.awaitsAnswer() {
			need = verbs.AccessLocalWrite
		}
		for _, s := range e.sgl {
			if s.Length == 0 {
				continue
			}
			r, _, why := c.q.local(s.LKey, s.Addr, int(s.Length), need)
			if why != accepted {
				return verbs.WCLocProtErr
			}
			r.exit()
		}
	}
	return verbs.WCSuccess
}

// finish ends a message: once the socket has the stream up to here, the request is sent.
func (c *conn) finish(e *sendEntry) {
	c.q.mu.Lock()
	e.end = c.tx.built
	c.q.mu.Unlock()
	c.tx.task, c.tx.entry = taskNone, nil
}

// sealed counts an FPDU that has been put into a batch.
func (c *conn) sealed(b *batch) {
	before := b.whole()
	b.end(c.crc && !c.markOut)
	if c.markOut {
		b.mark(c.tx.built, c.crc)
	}
	c.tx.built += uint64(b.size - before)
}

// span returns how many payload octets go into the next segment behind n octets of headers. Large segments are multiples of
// the page size, so that data which begin on one stay on one.
func (c *conn) span(left uint32, n int) int {
	most := c.mulpdu - n
	if most > 16<<10 {
		most &^= 4<<10 - 1
	}
	return int(min(int64(left), int64(most)))
}

// request builds the next segment of a request. It reports false if it cannot.
func (c *conn) request(b *batch) bool {
	e := c.tx.entry
	switch e.op {
	case verbs.WRRDMARead:
		rr := rdmap.ReadRequest{Size: e.length, SrcSTag: e.rkey, SrcTO: e.raddr}
		if len(e.sgl) > 0 {
			rr.SinkSTag, rr.SinkTO = e.sgl[0].LKey, e.sgl[0].Addr
		}
		h := b.begin(ddp.UntaggedLen+rdmap.ReadRequestLen, ddp.UntaggedLen+rdmap.ReadRequestLen)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpReadRequest), QN: ddp.QNReadRequest, MSN: e.msn}.Put(h)
		rr.Put(h[ddp.UntaggedLen:])
		c.sealed(b)
		c.finish(e)
	case verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp, verbs.WRMaskedAtomicCmpAndSwp:
		ar := rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd, ID: e.msn, STag: e.rkey, TO: e.raddr, AddSwap: e.operands.add,
			AddSwapMask: e.operands.addMask, Compare: e.operands.compare, CompareMask: e.operands.compareMask}
		if e.op == verbs.WRAtomicCmpAndSwp || e.op == verbs.WRMaskedAtomicCmpAndSwp {
			ar.Op = rdmap.AtomicCmpSwap
		}
		h := b.begin(ddp.UntaggedLen+rdmap.AtomicRequestLen, ddp.UntaggedLen+rdmap.AtomicRequestLen)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpAtomicRequest), QN: ddp.QNReadRequest, MSN: e.msn}.Put(h)
		ar.Put(h[ddp.UntaggedLen:])
		c.sealed(b)
		c.finish(e)
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		n := c.span(e.length-c.tx.off, ddp.TaggedLen)
		last := c.tx.off+uint32(n) == e.length
		h := b.begin(ddp.TaggedLen+n, ddp.TaggedLen)
		ddp.Tagged{Last: last, ULP: rdmap.Control(rdmap.OpWrite), STag: e.rkey, TO: e.raddr + uint64(c.tx.off)}.Put(h)
		if !c.gather(b, e, n) {
			return false
		}
		if last && e.op == verbs.WRRDMAWriteWithImm {
			c.tx.task = taskImm
			c.tx.sendNo[0]++
			c.q.mu.Lock()
			e.msn = c.tx.sendNo[0]
			c.q.mu.Unlock()
		} else if last {
			c.finish(e)
		}
	default:
		n := c.span(e.length-c.tx.off, ddp.UntaggedLen)
		last := c.tx.off+uint32(n) == e.length
		h := b.begin(ddp.UntaggedLen+n, ddp.UntaggedLen)
		hdr := ddp.Untagged{Last: last, ULP: rdmap.Control(e.rdmapOpcode()), QN: ddp.QNSend, MSN: e.msn, MO: c.tx.off}
		if e.op == verbs.WRSendWithInv {
			hdr.InvSTag = e.invalidate
		}
		hdr.Put(h)
		if !c.gather(b, e, n) {
			return false
		}
		if last {
			c.finish(e)
		}
	}
	return true
}

// rdmapOpcode returns the opcode of the request's message; of a Write with immediate the first one's.
func (e *sendEntry) rdmapOpcode() rdmap.Opcode {
	solicited := e.flags&verbs.SendSolicited != 0
	switch {
	case e.op == verbs.WRRDMAWrite, e.op == verbs.WRRDMAWriteWithImm:
		return rdmap.OpWrite
	case e.op == verbs.WRRDMARead:
		return rdmap.OpReadRequest
	case e.isAtomic():
		return rdmap.OpAtomicRequest
	case e.op == verbs.WRImmData && solicited:
		return rdmap.OpImmediateSE
	case e.op == verbs.WRImmData:
		return rdmap.OpImmediate
	case e.op == verbs.WRSendWithInv && solicited:
		return rdmap.OpSendSEInv
	case e.op == verbs.WRSendWithInv:
		return rdmap.OpSendInv
	case solicited:
		return rdmap.OpSendSE
	}
	return rdmap.OpSend
}

// gather puts the next n octets of a request's data behind the header that has been begun, and completes the segment. It
// reports false if a key has been withdrawn meanwhile. That ends the connection, but not before the batch is empty: what is
// in it is whole and to be sent.
func (c *conn) gather(b *batch, e *sendEntry, n int) bool {
	off := uint64(c.tx.off)
	if e.flags&verbs.SendInline != 0 {
		b.copy(e.inline[off : off+uint64(n)])
	} else {
		left := uint64(n)
		for _, s := range e.sgl {
			if left == 0 {
				break
			}
			if off >= uint64(s.Length) {
				off -= uint64(s.Length)
				continue
			}
			k := min(left, uint64(s.Length)-off)
			r, mem, why := c.q.local(s.LKey, s.Addr+off, int(k), 0)
			if why != accepted {
				b.abandon()
				if b.size == 0 {
					c.q.mu.Lock()
					c.failRequest(e, verbs.WCLocProtErr)
					c.q.mu.Unlock()
				}
				return false
			}
			if k <= copyLimit || c.markOut {
				b.copy(mem)
				r.exit()
			} else {
				b.refer(r, mem, c.crc)
			}
			off, left = 0, left-k
		}
	}
	c.tx.off += uint32(n)
	c.sealed(b)
	return true
}

// immediate builds an Immediate Data message (RFC 7306 section 6.2).
func (c *conn) immediate(b *batch) {
	e := c.tx.entry
	op := rdmap.OpImmediate
	if e.flags&verbs.SendSolicited != 0 {
		op = rdmap.OpImmediateSE
	}
	h := b.begin(ddp.UntaggedLen+rdmap.ImmediateLen, ddp.UntaggedLen+rdmap.ImmediateLen)
	ddp.Untagged{Last: true, ULP: rdmap.Control(op), QN: ddp.QNSend, MSN: e.msn}.Put(h)
	rdmap.PutImmediate(h[ddp.UntaggedLen:], e.imm)
	c.sealed(b)
	c.finish(e)
}

// readResponse builds the next segment of the answer to a Read. The data are copied: unlike those of our own requests they
// may change, or the right to read them may be withdrawn, while they wait to be sent. It reports false if they cannot be
// read any more; see gather.
func (c *conn) readResponse(b *batch) bool {
	rr := &c.tx.resp.read
	n := c.span(rr.Size-c.tx.off, ddp.TaggedLen)
	last := c.tx.off+uint32(n) == rr.Size
	var (
		r   *region
		mem []byte
	)
	if n > 0 {
		var why reject
		if r, mem, why = c.dev.stags.check(c.q, rr.SrcSTag, rr.SrcTO+uint64(c.tx.off), n, verbs.AccessRemoteRead); why != accepted {
			// The key was good when the request arrived.
			if b.size == 0 {
				t := c.readTermination(why)
				c.fail(t.err(), t)
			}
			return false
		}
	}
	h := b.begin(ddp.TaggedLen+n, ddp.TaggedLen)
	ddp.Tagged{Last: last, ULP: rdmap.Control(rdmap.OpReadResponse), STag: rr.SinkSTag, TO: rr.SinkTO + uint64(c.tx.off)}.Put(h)
	if n > 0 {
		b.copy(mem)
		r.exit()
	}
	c.sealed(b)
	c.tx.off += uint32(n)
	if last {
		c.endResponse()
	}
	return true
}

// readTermination quotes the Read Request that cannot be answered further, advanced by what has been answered (RFC 5040
// section 4.8).
func (c *conn) readTermination(why reject) *termination {
	rr := c.tx.resp.read
	rr.SinkTO += uint64(c.tx.off)
	rr.SrcTO += uint64(c.tx.off)
	rr.Size -= c.tx.off
	t := &termination{fault: why.request(), segLen: ddp.UntaggedLen + rdmap.ReadRequestLen,
		ddp: make([]byte, ddp.UntaggedLen), rdmap: make([]byte, rdmap.ReadRequestLen)}
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpReadRequest), QN: ddp.QNReadRequest, MSN: c.tx.resp.msn}.Put(t.ddp)
	rr.Put(t.rdmap)
	return t
}

func (c *conn) atomicResponse(b *batch) {
	c.tx.respNo++
	h := b.begin(ddp.UntaggedLen+rdmap.AtomicResponseLen, ddp.UntaggedLen+rdmap.AtomicResponseLen)
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpAtomicResponse), QN: ddp.QNAtomicResponse, MSN: c.tx.respNo}.Put(h)
	c.tx.resp.result.Put(h[ddp.UntaggedLen:])
	c.sealed(b)
	c.endResponse()
}

// cut lets go of the memory of what has not been sent and returns what must still be sent so that the stream ends behind a
// whole FPDU.
func (t *sender) cut() (tail []byte) {
	if t.batch == nil {
		return nil
	}
	tail = t.batch.rest()
	t.batch.reset()
	batchPool.Put(t.batch)
	t.batch = nil
	return tail
}

// holds reports whether the batch refers to memory of r, or of a window of it.
func (t *sender) holds(r *region) bool {
	if t.batch == nil {
		return false
	}
	for _, ref := range t.batch.refs {
		if ref == r || ref.parent == r {
			return true
		}
	}
	return false
}

// culprit finds the request that a peer's Terminate is about, nil if it cannot be told. The caller holds q.mu.
func (c *conn) culprit(t *rdmap.Terminate) *sendEntry {
	sq := &c.q.sq
	var quoted func(e *sendEntry) bool
	switch {
	case len(t.DDPHeader) == 0 && t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeOperation:
		// Nothing is quoted, as kernel siw does for operations that it does not know: it is the oldest one without an answer.
		quoted = func(e *sendEntry) bool { return e.awaitsAnswer() && !e.answered }
	case len(t.DDPHeader) == 0:
		return nil
	case ddp.IsTagged(t.DDPHeader[0]):
		h, err := ddp.ParseTagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		quoted = func(e *sendEntry) bool {
			return (e.op == verbs.WRRDMAWrite || e.op == verbs.WRRDMAWriteWithImm) && e.rkey == h.STag &&
				h.TO >= e.raddr && h.TO-e.raddr <= uint64(e.length)
		}
	default:
		h, err := ddp.ParseUntagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		quoted = func(e *sendEntry) bool {
			return e.msn == h.MSN && (h.QN == ddp.QNReadRequest && e.awaitsAnswer() ||
				h.QN == ddp.QNSend && !e.awaitsAnswer() && !e.isLocal() && e.op != verbs.WRRDMAWrite)
		}
	}
	for i := sq.head; i < sq.next; i++ {
		if e := sq.at(i); quoted(e) {
			return e
		}
	}
	return nil
}
