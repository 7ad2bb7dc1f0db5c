// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/siw/ddp"
	"github.com/goverbs/goverbs/siw/mpa"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// readBytes is the size of a receive buffer: how much one system call may bring. It must hold the largest FPDU and, so that few
// of them are moved, a good deal more.
const readBytes = 256 << 10

// Parts of FPDUs that wait for the rest: up to smallPart octets are copied out of the buffer, larger ones keep it while
// fewer than maxPartial connections of the NIC do.
const (
	smallPart  = 512
	maxPartial = 64
)

// receiver is the receive side of a connection. Whoever holds mu has the receive role: it parses, places and completes,
// answers by queueing, and never waits.
type receiver struct {
	mu sync.Mutex // before q.mu

	buf   *[readBytes]byte // nil while nothing is there
	r, w  int              // what is unread in buf
	iov   [1][]byte
	part  []byte // what was unread when buf was given back
	held  bool   // buf is kept and counted in device.partial
	reply bool   // something was queued to be sent
	heard bool   // the first FPDU has arrived

	no [4]uint32 // the next MSN on each queue

	// The Send message that is being received, into a receive that has been taken.
	open   bool
	recv   recvEntry
	got    uint64
	status verbs.WCStatus // of recv, if the message was at fault

	// The RDMA Write before an immediate: its length so far, and whether a message of another kind has come since its end.
	writing bool
	wrote   bool
	written uint64

	readGot uint32 // octets of the oldest Read that have been placed
	opening bool   // the Read that opened the connection is not answered yet

	pos uint64 // position in the stream of what is unread; only counted with markers
}

var readPool = sync.Pool{New: func() any { return new([readBytes]byte) }}

func (r *receiver) init(q *qp, agreed *setup) {
	r.no = [4]uint32{1, 1, 1, 1}
	r.opening = agreed.openedBy == RTRRead
	r.recv.sgl = make([]verbs.SGE, 0, q.cap.MaxRecvSGE)
}

// flush completes the receive that was taken for a message which did not become whole. The caller holds mu and q.mu.
func (r *receiver) flush(q *qp) {
	if !r.open {
		return
	}
	r.open = false
	if r.status == verbs.WCSuccess {
		r.status = verbs.WCWRFlushErr
	}
	q.recvCQ.push(&verbs.WC{ID: r.recv.id, Status: r.status, QPNum: q.num}, false)
}

// readLoop receives until the connection ends.
func (c *conn) readLoop() {
	err := c.s.waitReadable(func() bool {
		for c.receive() {
			// Nothing is left, most likely, but only another attempt tells: what came with the peer's FIN is not announced
			// twice. Whom we woke goes first.
			runtime.Gosched()
		}
		return c.dead.Load()
	})
	if err != nil {
		c.fail(err, nil)
	}
}

// receive takes the receive role and handles what has arrived. It reports true if it stopped before it was told that nothing
// is left.
func (c *conn) receive() bool {
	c.rx.mu.Lock()
	defer c.rx.mu.Unlock()
	return c.receiveLocked()
}

// receiveLocked is receive for a caller that holds the role.
func (c *conn) receiveLocked() bool {
	r := &c.rx
	c.unpark()
	defer c.park()
	for !c.dead.Load() {
		r.iov[0] = r.buf[r.w:]
		n, err := c.s.read(r.iov[:])
		if err != nil {
			c.ended(err)
			return false
		}
		c.tap(false, r.iov[:], n)
		r.w += n
		short := r.w < len(r.buf)
		c.consume()
		if r.reply {
			r.reply = false
			c.kick()
		}
		if short {
			return true
		}
	}
	return false
}

// park gives the receive buffer back while nothing is there to be received; part of an FPDU is kept in a piece of memory of its own
// size if it is small or if many connections are waiting for the rest of one, so that slow peers do not hold much.
func (c *conn) park() {
	r := &c.rx
	left := r.w - r.r
	if left > 0 && !c.dead.Load() {
		if left > smallPart && c.dev.partial.Add(1) <= maxPartial {
			r.held = true
			return
		}
		r.part = append([]byte(nil), r.buf[r.r:r.w]...)
		if left > smallPart {
			c.dev.partial.Add(-1)
		}
	}
	readPool.Put(r.buf)
	r.buf = nil
}

// unpark is the opposite.
func (c *conn) unpark() {
	r := &c.rx
	if r.held {
		r.held = false
		c.dev.partial.Add(-1)
	}
	if r.buf == nil {
		r.buf = readPool.Get().(*[readBytes]byte)
		r.r, r.w = 0, copy(r.buf[:], r.part)
		r.part = nil
	}
}

// ended handles the reason for which nothing more can be read now.
func (c *conn) ended(err error) {
	switch {
	case err == errWouldBlock:
	case err == io.EOF && c.rx.r != c.rx.w:
		c.fail(io.ErrUnexpectedEOF, nil)
	case errors.Is(err, io.EOF):
		c.fail(io.EOF, nil)
	default:
		c.fail(err, nil)
	}
}

// consume handles every FPDU that is entirely in the buffer (RFC 5044 section 4.1).
func (c *conn) consume() {
	r := &c.rx
	need := 0
	for !c.dead.Load() {
		var fpdu []byte
		var f fault
		if fpdu, need, f = c.frame(r.buf[r.r:r.w]); f != (fault{}) {
			c.refuse(f, nil)
			return
		}
		if fpdu == nil {
			break
		}
		first := !r.heard
		if first {
			c.release()
		}
		ulpdu := fpdu[mpa.LengthLen : mpa.LengthLen+int(binary.BigEndian.Uint16(fpdu))]
		if f, ok := c.segment(ulpdu); !ok {
			c.refuse(f, ulpdu)
			return
		}
		if first {
			c.hear()
		}
		r.r += need
		r.pos += uint64(need)
	}
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
	case len(r.buf)-r.r < need:
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
}

// frame finds the FPDU at the start of b and checks its CRC. need is how many octets of the stream it takes, as far as is known;
// if they are not all there, fpdu is nil.
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

// release lets us send, now that the peer has (RFC 5044 section 7.1.2).
func (c *conn) release() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.tx.hold {
		c.tx.hold = false
		c.rx.reply = true
	}
}

// hear notes that the peer's first FPDU has been handled.
func (c *conn) hear() {
	c.rx.heard = true
	if c.rtr {
		c.rx.wrote = false // the Write that opens a connection is nobody's message
	}
	if !c.dead.Load() {
		close(c.spoken)
	}
}

// segment handles a DDP segment. It reports false and the fault if the segment is refused; nothing has been placed then.
// An FPDU is handled after its CRC has been checked, so that data which were damaged on the way are never placed.
func (c *conn) segment(b []byte) (fault, bool) {
	if ddp.IsTagged(b[0]) {
		return c.tagged(b)
	}
	return c.untagged(b)
}

// tagged handles RDMA Write and RDMA Read Response (RFC 5041 section 7.2).
func (c *conn) tagged(b []byte) (fault, bool) {
	if ddp.VersionOf(b[0]) != ddp.Version {
		return faultTaggedVersion, false
	}
	h, err := ddp.ParseTagged(b)
	if err != nil {
		return faultSize, false
	}
	version, op := rdmap.ParseControl(h.ULP)
	if version != rdmap.Version {
		return faultVersion, false
	}
	payload := b[ddp.TaggedLen:]
	switch op {
	case rdmap.OpWrite:
		return c.write(h, payload)
	case rdmap.OpReadResponse:
		return c.readAnswer(h, payload)
	}
	return faultOpcode, false
}

// write places a segment of an RDMA Write.
func (c *conn) write(h ddp.Tagged, payload []byte) (fault, bool) {
	// The key of a segment without data is not looked at (RFC 5041 section 5.2).
	if len(payload) > 0 {
		if c.q.remoteAccess()&verbs.AccessRemoteWrite == 0 {
			return rejectRights.tagged(), false
		}
		reg, mem, why := c.dev.stags.check(c.q, h.STag, h.TO, len(payload), verbs.AccessRemoteWrite)
		if why != accepted {
			return why.tagged(), false
		}
		place(mem, payload)
		reg.exit()
	}
	r := &c.rx
	if !r.writing {
		r.writing, r.written = true, 0
	}
	r.written += uint64(len(payload))
	if h.Last {
		r.writing, r.wrote = false, true
	}
	return fault{}, true
}

// readAnswer places a segment of the answer to our oldest Read (RFC 5040 section 5.2.2).
func (c *conn) readAnswer(h ddp.Tagged, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if r.opening {
		if len(payload) > 0 || !h.Last {
			return rejectBounds.tagged(), false
		}
		r.opening, r.reply = false, true
		q.mu.Lock()
		c.tx.outstanding--
		q.mu.Unlock()
		return fault{}, true
	}
	// The entry stays while we hold the receive role: only an answer completes it.
	e := c.oldest(&c.tx.reads)
	if e == nil {
		return rejectSTag.tagged(), false
	}
	end := uint64(r.readGot) + uint64(len(payload))
	if e.length > 0 {
		sink := e.sgl[0]
		switch {
		case h.STag != sink.LKey:
			return rejectSTag.tagged(), false
		case h.TO != sink.Addr+uint64(r.readGot), end > uint64(e.length), h.Last != (end == uint64(e.length)):
			return rejectBounds.tagged(), false
		}
	} else if len(payload) > 0 || !h.Last {
		return rejectBounds.tagged(), false
	}
	if len(payload) > 0 {
		reg, mem, why := q.local(e.sgl[0].LKey, h.TO, len(payload), verbs.AccessLocalWrite)
		if why != accepted {
			c.lost(e)
			return why.tagged(), false
		}
		place(mem, payload)
		reg.exit()
	}
	r.readGot = uint32(end)
	if h.Last {
		r.readGot = 0
		c.answered(&c.tx.reads, e)
	}
	return fault{}, true
}

// oldest returns the request at the head of one of the queues of unanswered requests, nil if there is none.
func (c *conn) oldest(queue *ring[uint64]) *sendEntry {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if queue.len() == 0 {
		return nil
	}
	return c.q.sq.at(*queue.front())
}

// lost notes that the memory for an answer has been deregistered.
func (c *conn) lost(e *sendEntry) {
	c.q.mu.Lock()
	e.status = verbs.WCLocProtErr
	c.q.mu.Unlock()
}

// answered completes the request at the head of queue; requests that waited for it may start.
func (c *conn) answered(queue *ring[uint64], e *sendEntry) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	queue.pop()
	e.answered = true
	c.tx.outstanding--
	c.q.retire()
	if c.q.sq.next < c.q.sq.tail {
		c.rx.reply = true
	}
}

// untagged handles every other message. The order of the checks: DDP version, queue, sequence; RDMAP version, opcode and
// whether it belongs on the queue; offset and length; then what the message asks for.
func (c *conn) untagged(b []byte) (fault, bool) {
	if ddp.VersionOf(b[0]) != ddp.Version {
		return faultDDPVersion, false
	}
	h, err := ddp.ParseUntagged(b)
	if err != nil {
		return faultSize, false
	}
	if h.QN > ddp.QNAtomicResponse {
		return faultQN, false
	}
	if h.MSN != c.rx.no[h.QN] {
		return faultMSN, false
	}
	version, op := rdmap.ParseControl(h.ULP)
	if version != rdmap.Version {
		return faultVersion, false
	}
	payload := b[ddp.UntaggedLen:]
	var handle func(*conn, ddp.Untagged, []byte) (fault, bool)
	queue, length := uint32(ddp.QNSend), 0
	switch op {
	case rdmap.OpSend, rdmap.OpSendSE, rdmap.OpSendInv, rdmap.OpSendSEInv:
		if h.QN != queue || !c.enabled(op) {
			return faultOpcode, false
		}
		return c.send(h, op, payload)
	case rdmap.OpTerminate:
		if h.QN != ddp.QNTerminate {
			return faultOpcode, false
		}
		c.terminated(payload)
		return fault{}, true
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		handle, length = (*conn).immediateData, rdmap.ImmediateLen
	case rdmap.OpReadRequest:
		handle, queue, length = (*conn).readRequest, ddp.QNReadRequest, rdmap.ReadRequestLen
	case rdmap.OpAtomicRequest:
		handle, queue, length = (*conn).atomicRequest, ddp.QNReadRequest, rdmap.AtomicRequestLen
	case rdmap.OpAtomicResponse:
		handle, queue, length = (*conn).atomicAnswer, ddp.QNAtomicResponse, rdmap.AtomicResponseLen
	default:
		return faultOpcode, false
	}
	switch {
	case h.QN != queue || !c.enabled(op):
		return faultOpcode, false
	case h.MO != 0 || !h.Last:
		return faultMO, false
	case len(payload) > length:
		return faultTooLong, false
	case len(payload) < length:
		return faultStream, false
	}
	if f, ok := handle(c, h, payload); !ok {
		return f, false
	}
	c.rx.no[h.QN]++
	return fault{}, true
}

// enabled reports whether a message of this kind is accepted at all.
func (c *conn) enabled(op rdmap.Opcode) bool {
	ops := c.dev.ops
	switch op {
	case rdmap.OpSendInv, rdmap.OpSendSEInv:
		return ops.Has(verbs.OpSendInv)
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		return ops.Has(verbs.OpImm64) || ops.Has(verbs.OpWriteImm)
	case rdmap.OpAtomicRequest, rdmap.OpAtomicResponse:
		return ops.Has(verbs.OpFetchAdd) || ops.Has(verbs.OpCmpSwap) || ops.Has(verbs.OpMaskedFetchAdd) || ops.Has(verbs.OpMaskedCmpSwap)
	}
	return true
}

// send places a segment of a Send message and completes the receive with its last (RFC 5040 section 5.3).
func (c *conn) send(h ddp.Untagged, op rdmap.Opcode, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if !r.open {
		if h.MO != 0 {
			return faultMO, false
		}
		if !q.rq.take(&r.recv) {
			return faultNoBuffer, false
		}
		r.open, r.got, r.status = true, 0, verbs.WCSuccess
	}
	if uint64(h.MO) != r.got {
		return faultMO, false
	}
	if r.got+uint64(len(payload)) > r.recv.total {
		r.status = verbs.WCLocLenErr
		return faultTooLong, false
	}
	if !c.scatter(payload) {
		r.status = verbs.WCLocProtErr
		return faultPlace, false
	}
	r.got += uint64(len(payload))
	if !h.Last {
		return fault{}, true
	}
	wc := verbs.WC{ID: r.recv.id, Opcode: verbs.WCRecv, ByteLen: uint32(r.got), QPNum: q.num}
	if op == rdmap.OpSendInv || op == rdmap.OpSendSEInv {
		if f, ok := c.invalidate(h.InvSTag); !ok {
			return f, false
		}
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, h.InvSTag
	}
	r.no[ddp.QNSend]++
	r.open, r.wrote, r.writing = false, false, false
	q.recvCQ.push(&wc, op == rdmap.OpSendSE || op == rdmap.OpSendSEInv)
	return fault{}, true
}

// invalidate does what a Send with Invalidate asks for.
func (c *conn) invalidate(stag uint32) (fault, bool) {
	switch c.dev.invalidate(c.q, stag) {
	case accepted:
		return fault{}, true
	case rejectSTag:
		return faultInvalOp, false
	}
	return faultInvalKey, false
}

// scatter places payload into the receive from offset got on.
func (c *conn) scatter(payload []byte) bool {
	r := &c.rx
	off := r.got
	for _, s := range r.recv.sgl {
		if len(payload) == 0 {
			break
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		n := int(min(uint64(len(payload)), uint64(s.Length)-off))
		reg, mem, why := c.q.local(s.LKey, s.Addr+off, n, verbs.AccessLocalWrite)
		if why != accepted {
			return false
		}
		place(mem, payload[:n])
		reg.exit()
		payload, off = payload[n:], 0
	}
	return true
}

// immediateData completes a receive with 8 octets of Immediate Data (RFC 7306 section 6).
func (c *conn) immediateData(h ddp.Untagged, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if r.open {
		// A Send message with this number has begun.
		return faultMO, false
	}
	if !q.rq.take(&r.recv) {
		return faultNoBuffer, false
	}
	v := rdmap.ParseImmediate(payload)
	wc := verbs.WC{ID: r.recv.id, Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm, ByteLen: rdmap.ImmediateLen,
		Imm: uint32(v >> 32), Imm64: v, QPNum: q.num}
	if r.wrote {
		wc.Opcode, wc.ByteLen = verbs.WCRecvRDMAWithImm, uint32(r.written)
	}
	r.wrote, r.writing = false, false
	_, op := rdmap.ParseControl(h.ULP)
	q.recvCQ.push(&wc, op == rdmap.OpImmediateSE)
	return fault{}, true
}

// readRequest queues the answer to a Read (RFC 5040 section 5.2.1). The source is checked now; its data are taken when the
// answer is sent, and checked again then.
func (c *conn) readRequest(h ddp.Untagged, payload []byte) (fault, bool) {
	rr, err := rdmap.ParseReadRequest(payload)
	if err != nil {
		return faultStream, false
	}
	if c.overIRD() {
		return faultNoBuffer, false
	}
	// A Read of length 0 names nothing (RFC 5040 section 5.2.1).
	if rr.Size > 0 {
		if c.q.remoteAccess()&verbs.AccessRemoteRead == 0 {
			return rejectRights.request(), false
		}
		reg, _, why := c.dev.stags.check(c.q, rr.SrcSTag, rr.SrcTO, int(rr.Size), verbs.AccessRemoteRead)
		if why != accepted {
			return why.request(), false
		}
		reg.exit()
	}
	c.answer(response{msn: h.MSN, read: rr})
	return fault{}, true
}

// atomicRequest performs an atomic and queues its answer (RFC 7306 section 5). Nothing is touched before every check has
// passed: atomic operation, key, association, rights, wrap, bounds, alignment.
func (c *conn) atomicRequest(h ddp.Untagged, payload []byte) (fault, bool) {
	ar, err := rdmap.ParseAtomicRequest(payload)
	if err != nil {
		return faultStream, false
	}
	if c.overIRD() {
		return faultNoBuffer, false
	}
	if ar.Op != rdmap.AtomicFetchAdd && ar.Op != rdmap.AtomicCmpSwap {
		return faultOpcode, false
	}
	if c.q.remoteAccess()&verbs.AccessRemoteAtomic == 0 {
		return rejectRights.request(), false
	}
	reg, mem, why := c.dev.stags.check(c.q, ar.STag, ar.TO, 8, verbs.AccessRemoteAtomic)
	if why != accepted {
		return why.request(), false
	}
	if !aligned(mem) {
		reg.exit()
		return faultStream, false
	}
	res := rdmap.AtomicResponse{ID: ar.ID}
	if ar.Op == rdmap.AtomicFetchAdd {
		res.Value = fetchAdd(mem, ar.AddSwap, ar.AddSwapMask)
	} else {
		res.Value = cmpSwap(mem, ar.Compare, ar.CompareMask, ar.AddSwap, ar.AddSwapMask)
	}
	reg.exit()
	c.answer(response{msn: h.MSN, atomic: true, result: res})
	return fault{}, true
}

// overIRD reports whether the peer has as many requests in progress as it may. Some peers round the depth they were given
// up to a power of two; so does the limit.
func (c *conn) overIRD() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.ird == 0 || c.tx.responses.len() >= 1<<bits.Len(uint(c.ird-1))
}

// answer queues a response; requests are answered in the order in which they arrived.
func (c *conn) answer(resp response) {
	c.rx.wrote, c.rx.writing = false, false
	c.q.mu.Lock()
	c.tx.responses.push(resp)
	c.q.mu.Unlock()
	c.rx.reply = true
}

// atomicAnswer completes our oldest atomic (RFC 7306 section 5.2.2): responses come in the order of the requests.
func (c *conn) atomicAnswer(_ ddp.Untagged, payload []byte) (fault, bool) {
	res, err := rdmap.ParseAtomicResponse(payload)
	if err != nil {
		return faultStream, false
	}
	e := c.oldest(&c.tx.atomics)
	if e == nil {
		return faultNoBuffer, false
	}
	if res.ID != e.msn {
		return faultStream, false
	}
	sink := e.sgl[0]
	reg, mem, why := c.q.local(sink.LKey, sink.Addr, 8, verbs.AccessLocalWrite)
	if why != accepted {
		c.lost(e)
		return faultPlace, false
	}
	var native [8]byte
	binary.NativeEndian.PutUint64(native[:], res.Value)
	place(mem, native[:])
	reg.exit()
	c.answered(&c.tx.atomics, e)
	return fault{}, true
}
