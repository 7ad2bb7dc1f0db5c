// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// sendSide holds the send requests of a QP, oldest first. They are issued in order, and the first
// one that must wait holds up the rest. A request is done when its inner requests have completed
// and it is confirmed: the peer has taken its message, or for a Write a later message, or its
// response has arrived. It leaves the queue after all requests before it.
type sendSide struct {
	reqs    queue.Ring[request]
	base    uint64 // number of the oldest request, counted from 0
	next    int    // index of the first request not issued
	stopped bool   // a request failed locally: none after it is issued

	stage  []byte // the data of a short Send, copied into a send slot after the header
	staged uint64 // the number of that Send, plus 1

	flight queue.Ring[part] // inner requests, oldest first
	list   []verbs.SendWR   // inner requests about to be posted
	// send slot of the last one, if that is a message that can carry FlagAsk; otherwise -1
	tail  int32
	arena []verbs.SGE // the elements of list

	adverts adverts // receives of the peer
	known   uint64  // how many it has advertised

	reads    int               // unanswered inner Reads and atomics
	awaiting int               // unanswered emulated atomics
	atomic   uint64            // message number of the last Atomic
	cover    uint64            // taking this many messages confirms every message that is not relaxed
	wrote    written           // the last Write that is not relaxed
	placed   uint64            // requests before this number have been placed, except messages
	natives  uint64            // requests before this number will be, once the outstanding responses arrive
	partNums [manyParts]uint64 // the message numbers of the last Parts
	nparts   int

	answers queue.Ring[wire.Header] // to be sent to the peer
	rnr     rnr
}

// request is a send request posted by the program.
type request struct {
	id       uint64
	op       verbs.WROpcode
	flags    verbs.SendFlags
	signaled bool
	relaxed  bool
	message  bool // confirmed only once the peer has taken it
	checked  bool // its memory was checked
	native   bool // answered by the inner device
	waiting  bool // for an Answer
	refused  bool // by this side: it has no inner requests
	remote   bool // the peer's device refused it
	cut      bool // one of its inner requests was flushed
	status   verbs.WCStatus
	reason   error
	parts    int // inner requests not yet completed
	sgl      []verbs.SGE
	inline   []byte
	length   uint64
	sent     uint64 // bytes of it sent in Parts, or copied by a QP that is its own peer
	covered  uint64 // it is confirmed when the peer has taken this many messages
	addr     uint64
	rkey     uint32
	imm      uint32

	add, addMask, compare, compareMask, swap, swapMask uint64
}

// written states when a Write is confirmed: when the peer has taken covered messages, or when the
// requests before number have been placed.
type written struct{ covered, number uint64 }

// part is an inner request.
type part struct {
	req    uint64 // number of the program's request
	own    bool   // it belongs to no request of the program
	answer bool   // it is a Read or an atomic
	slot   int32  // -1 = none
}

// Implementation limits of lists of inner requests.
const (
	mostPieces = wire.MaxSGE + 1 // inner requests of one request
	listLen    = 64
	arenaLen   = 256
	stageLen   = 256 // bytes of a Send that are copied rather than gathered: a further element costs more than the copy
)

func (s *sendSide) init(c verbs.QPCap) {
	s.list = make([]verbs.SendWR, 0, listLen)
	s.arena = make([]verbs.SGE, 0, arenaLen)
	s.stage, s.tail = make([]byte, 0, stageLen), -1
	s.reqs = queue.Grown[request](c.MaxSendWR)
	n := len(s.reqs.Places())
	sges, inline := make([]verbs.SGE, n*c.MaxSendSGE), make([]byte, n*c.MaxInlineData)
	for i := range s.reqs.Places() {
		r := &s.reqs.Places()[i]
		r.sgl = sges[i*c.MaxSendSGE:][:0:c.MaxSendSGE]
		r.inline = inline[i*c.MaxInlineData:][:0:c.MaxInlineData]
	}
}

func (s *sendSide) clear() {
	fresh := sendSide{reqs: s.reqs, flight: s.flight, stage: s.stage, list: s.list[:0], arena: s.arena[:0], tail: -1,
		adverts: s.adverts, answers: s.answers}
	fresh.reqs.Clear()
	fresh.flight.Clear()
	fresh.adverts.Clear()
	fresh.answers.Clear()
	*s = fresh
}

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != verbs.QPStateRTS && q.state != verbs.QPStateSQD && q.state != verbs.QPStateErr {
		return 0, &verbs.StateError{State: q.state, Why: "sends can be posted from RTS on"}
	}
	for i := range wrs {
		if err := q.queue(&wrs[i]); err != nil {
			q.goOn()
			return i, err
		}
	}
	q.goOn()
	return len(wrs), nil
}

// goOn makes whatever progress a post allows.
func (q *qp) goOn() {
	if q.state == verbs.QPStateErr {
		q.settle()
		return
	}
	q.advance()
}

func isAtomic(op verbs.WROpcode) bool {
	switch op {
	case verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp, verbs.WRMaskedAtomicFetchAndAdd,
		verbs.WRMaskedAtomicCmpAndSwp:
		return true
	}
	return false
}

// queue appends a request.
func (q *qp) queue(wr *verbs.SendWR) error {
	if isAtomic(wr.Opcode) && wr.RemoteAddr%8 != 0 {
		return invalid("%v at %#x, which is not a multiple of 8", wr.Opcode, wr.RemoteAddr)
	}
	if q.reqs.Len() >= q.cap.MaxSendWR {
		return fmt.Errorf("%w: max_send_wr %d", verbs.ErrQueueFull, q.cap.MaxSendWR)
	}
	r := q.reqs.Add()
	*r = request{id: wr.ID, op: wr.Opcode, flags: wr.Flags, signaled: q.sigAll || wr.Flags&verbs.SendSignaled != 0,
		relaxed: q.ctx.dev.cfg.Relaxed || wr.Flags&verbs.SendRelaxed != 0, sgl: append(r.sgl[:0], wr.SGL...),
		inline: r.inline[:0],
		addr:   wr.RemoteAddr, rkey: wr.RKey, imm: wr.Imm, add: wr.Add, addMask: wr.AddMask, compare: wr.Compare,
		compareMask: wr.CompareMask,
		swap:        wr.Swap, swapMask: wr.SwapMask}
	switch wr.Opcode {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm:
		r.message = true
	case verbs.WRRDMARead:
		r.relaxed = false
	default:
		r.relaxed = r.relaxed && wr.Opcode == verbs.WRRDMAWrite
	}
	for i := range r.sgl {
		r.length += uint64(r.sgl[i].Length)
	}
	if wr.Flags&verbs.SendInline != 0 {
		q.copyInline(r)
	}
	return nil
}

// copyInline copies the data of an inline request. Its keys must be valid too, as on the inner
// device.
func (q *qp) copyInline(r *request) {
	r.checked = true
	var err error
	if r.inline, err = q.dom.fetch(r.sgl, r.inline); err != nil {
		r.status, r.reason = verbs.WCLocProtErr, err
	}
}

// issue starts requests in order, until one has to wait.
func (q *qp) issue() {
	for !q.stopped && q.next < q.reqs.Len() && (q.state != verbs.QPStateSQD || q.midway()) {
		r := q.reqs.At(q.next)
		if !q.start(r, q.base+uint64(q.next)) {
			break
		}
		q.next++
	}
}

// begun returns how many requests have been issued, counting one of which only some Parts were
// sent.
func (q *qp) begun() int {
	if q.next < q.reqs.Len() && q.reqs.At(q.next).sent > 0 {
		return q.next + 1
	}
	return q.next
}

// midway reports whether only a part of the next request has been sent.
func (q *qp) midway() bool { return q.begun() > q.next }

// roomFor reports whether the inner requests of any request would fit.
func (q *qp) roomFor() bool {
	if len(q.list)+mostPieces > cap(q.list) || len(q.arena)+mostPieces+2*mostSGE > cap(q.arena) {
		q.post()
	}
	return q.flight.Len()+mostPieces+ownSends <= q.depth && len(q.slots.free) > ownSends && q.running()
}

// start issues a request. It reports false if the request has to wait.
func (q *qp) start(r *request, number uint64) bool {
	q.staged = 0 // a Send that waited for a Read may have different data now
	if right(r.op) == 0 && r.length <= stageLen && !r.checked && r.status == verbs.WCSuccess {
		r.checked = true
		var err error
		if q.stage, err = q.dom.fetch(r.sgl, q.stage[:0]); err != nil {
			r.status, r.reason = verbs.WCLocProtErr, err
		}
		q.staged = number + 1
	}
	q.checkLocal(r)
	if need := right(r.op); q.lax() && r.status == verbs.WCSuccess && r.length > 0 && need&^q.rights != 0 {
		r.status = verbs.WCRemInvReqErr
		r.reason = fmt.Errorf("the peer's QP does not allow a %v", r.op)
	}
	if r.status != verbs.WCSuccess {
		r.refused, q.stopped = true, true
		q.wantAll()
		return true
	}
	if r.flags&verbs.SendFence != 0 && q.reads+q.awaiting > 0 || q.afterReads(r) || !q.roomFor() {
		return false
	}
	switch r.op {
	case verbs.WRRDMAWrite:
		if q.awaiting > 0 {
			return false // the agent is not ordered with the peer's device
		}
		if r.length > 0 {
			q.write(r, number)
		}
		r.covered = q.sent + 1
	case verbs.WRRDMAWriteWithImm:
		if q.awaiting > 0 || !q.ready() {
			return false
		}
		q.writeImm(r, number)
	case verbs.WRRDMARead:
		if q.awaiting > 0 {
			return false
		}
		q.read(r, number)
	case verbs.WRSend, verbs.WRSendWithImm:
		if !q.ready() || !q.send(r, number) {
			return false
		}
	default:
		if !q.startAtomic(r, number) {
			return false
		}
	}
	switch {
	case r.native:
		q.natives = number + 1
	case r.waiting || r.relaxed:
	case r.message:
		q.cover = r.covered
	default:
		q.wrote = written{r.covered, number + 1}
	}
	if r.signaled {
		q.wantAll()
	}
	return true
}

// lax reports whether the peer is a kernel device (wire.HelloLax).
func (q *qp) lax() bool { return q.peer.Flags&wire.HelloLax != 0 }

// afterReads reports whether the request must wait for outstanding Reads. A kernel device
// (HelloLax) may be siw, which checks a Read only when it answers it, in another thread: by the
// time it refuses a Read, it may have executed requests after it.
func (q *qp) afterReads(r *request) bool {
	return q.lax() && r.op != verbs.WRRDMARead && q.reads > 0
}

// checkLocal checks what a request needs locally: its memory, and an initiator depth.
func (q *qp) checkLocal(r *request) {
	one := r.op == verbs.WRRDMARead || isAtomic(r.op)
	if !r.checked && r.status == verbs.WCSuccess {
		r.checked = true
		need := verbs.AccessFlags(0)
		if one {
			need = verbs.AccessLocalWrite
		}
		if err := q.dom.check(r.sgl, need); err != nil {
			r.status, r.reason = verbs.WCLocProtErr, err
		}
	}
	if one && q.ord == 0 && r.status == verbs.WCSuccess {
		r.status, r.reason = verbs.WCLocQPOpErr, noDepth(r.op)
	}
}

func noDepth(op verbs.WROpcode) error { return fmt.Errorf("%v with an initiator depth of 0", op) }

// wantAll requires confirmation of all requests issued so far.
func (q *qp) wantAll() { q.want, q.wantWrite = max(q.want, q.cover), q.wrote }

// unsure reports whether confirmation must be requested because no expected response will provide
// it.
func (q *qp) unsure() bool {
	messages := q.want > q.taken
	writes := q.wantWrite.covered > q.taken && q.wantWrite.number > max(q.placed, q.natives)
	if q.awaiting > 0 { // the Answer confirms what precedes its Atomic
		messages, writes = messages && q.want > q.atomic, writes && q.wantWrite.covered > q.atomic
	}
	return messages || writes
}

// sure reports whether a request is confirmed: the peer is known to have received it.
func (q *qp) sure(r *request, number uint64) bool {
	switch {
	case r.relaxed:
		return true
	case r.native:
		return !r.cut
	case r.message:
		return q.taken >= r.covered
	}
	return q.taken >= r.covered || number < q.placed
}

// piece appends an inner request on behalf of request number; r is nil for the engine's own.
func (q *qp) piece(r *request, number uint64, wr verbs.SendWR, slot int32) {
	wr.ID = q.place
	wr.Flags |= verbs.SendSignaled
	q.list = append(q.list, wr)
	p := part{req: number, own: r == nil, slot: slot, answer: wr.Opcode == verbs.WRRDMARead || isAtomic(wr.Opcode)}
	if p.answer {
		q.reads++
	}
	if r != nil {
		r.parts++
	}
	q.flight.Push(p)
	q.tail = -1
}

// keep copies elements into the arena, where they stay until they are posted.
func (q *qp) keep(sgl ...verbs.SGE) []verbs.SGE {
	at := len(q.arena)
	q.arena = append(q.arena, sgl...)
	return q.arena[at:]
}

// post posts the inner requests.
func (q *qp) post() {
	if len(q.list) == 0 {
		return
	}
	n, err := q.in.PostSend(q.list)
	for range q.list[n:] {
		p := *q.flight.At(q.flight.Len() - 1)
		q.flight.Drop()
		q.landed(&p, verbs.WCWRFlushErr)
	}
	clear(q.list)
	q.list, q.arena, q.tail = q.list[:0], q.arena[:0], -1
	if err != nil {
		q.broken(err)
	}
}

// source returns the elements of a request's data; inline data are first copied to a send slot.
func (q *qp) source(r *request) (sgl []verbs.SGE, slot int32) {
	if r.flags&verbs.SendInline == 0 {
		return r.sgl, -1
	}
	if len(r.inline) == 0 {
		return nil, -1
	}
	slot = q.slots.take()
	b := append(q.slots.sendBytes(slot), r.inline...)
	return q.keep(q.slots.sendSGE(slot, len(b))), slot
}

func (q *qp) write(r *request, number uint64) {
	sgl, slot := q.source(r)
	q.piece(r, number, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sgl, RemoteAddr: r.addr, RKey: r.rkey}, slot)
}

// writeImm sends a Write and its immediate, as Immediate Data if possible, which carries no header
// but counts as a message, and otherwise as a Write and a message. A solicited one takes the second
// form: the peer's engine cannot see whether Immediate Data are solicited.
func (q *qp) writeImm(r *request, number uint64) {
	q.adverts.used()
	if q.full && r.flags&verbs.SendSolicited == 0 {
		sgl, slot := q.source(r)
		q.sent++
		r.covered = q.sent
		q.piece(r, number, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: sgl, RemoteAddr: r.addr, RKey: r.rkey,
			Imm: r.imm}, slot)
		return
	}
	if r.length > 0 {
		q.write(r, number)
	}
	q.say(r, number, wire.Header{Kind: wire.WriteImm, Flags: r.wireFlags() | wire.FlagImm, Imm: r.imm, Value: r.length},
		nil, nil)
}

func (r *request) wireFlags() (f uint8) {
	if r.flags&verbs.SendSolicited != 0 {
		f |= wire.FlagSolicited
	}
	if r.op == verbs.WRSendWithImm {
		f |= wire.FlagImm
	}
	return f
}

// A kernel device (HelloLax) may be siw, which returns wrong bytes for a Read of up to shortRead
// bytes that crosses a page.
const (
	shortRead = 32
	pageSize  = 4096
)

// read reads into one element after the other, using the second key of their memory if it has one.
// A Read of length 0 is confirmed like a Write.
func (q *qp) read(r *request, number uint64) {
	if r.length == 0 {
		r.covered = q.sent + 1
		return
	}
	r.native = true
	addr := r.addr
	for _, s := range r.sgl {
		if s.Length == 0 {
			continue
		}
		if _, m, err := q.dom.find(s.LKey, s.Addr, uint64(s.Length), verbs.AccessLocalWrite); err == nil {
			if m.sink != nil {
				s.LKey = m.sink.LKey()
			}
			m.mu.RUnlock()
		}
		if first := uint32(pageSize - addr%pageSize); q.lax() && s.Length <= shortRead && s.Length > first {
			head := s
			head.Length = first
			q.piece(r, number, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: q.keep(head), RemoteAddr: addr,
				RKey: r.rkey}, -1)
			addr += uint64(first)
			s.Addr, s.Length = s.Addr+uint64(first), s.Length-first
		}
		q.piece(r, number, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: q.keep(s), RemoteAddr: addr, RKey: r.rkey}, -1)
		addr += uint64(s.Length)
	}
}

func (q *qp) startAtomic(r *request, number uint64) bool {
	if q.full {
		r.native = true
		q.piece(r, number, verbs.SendWR{Opcode: r.op, SGL: r.sgl, RemoteAddr: r.addr, RKey: r.rkey, Add: r.add,
			AddMask: r.addMask, Compare: r.compare, CompareMask: r.compareMask, Swap: r.swap, SwapMask: r.swapMask}, -1)
		return true
	}
	if q.reads > 0 || q.awaiting == min(q.ord, window, int(q.peer.Window)) {
		return false
	}
	var b [wire.AtomicLen]byte
	r.waiting = true
	q.awaiting++
	a := r.atomic()
	q.say(r, number, wire.Header{Kind: wire.Atomic}, a.Append(b[:0]), nil)
	q.atomic = q.sent
	return true
}

// atomic returns the operation in the form that the agent executes.
func (r *request) atomic() wire.AtomicRequest {
	a := wire.AtomicRequest{RKey: r.rkey, Addr: r.addr}
	switch r.op {
	case verbs.WRAtomicFetchAndAdd:
		a.Operand = r.add
	case verbs.WRMaskedAtomicFetchAndAdd:
		a.Operand, a.Mask = r.add, r.addMask
	case verbs.WRAtomicCmpAndSwp:
		a.CmpSwap, a.Operand, a.Mask, a.Compare, a.CompareMask = true, r.swap, ^uint64(0), r.compare, ^uint64(0)
	default:
		a.CmpSwap, a.Operand, a.Mask, a.Compare, a.CompareMask = true, r.swap, r.swapMask, r.compare, r.compareMask
	}
	return a
}

// ready reports whether the peer has a receive for the next message.
func (q *qp) ready() bool { return q.adverts.Len() > 0 }

// send issues a Send in one of three forms: one message; Writes into the peer's receive, then a
// message; or several messages if the receive cannot be written. It reports false if the Send has
// to wait.
func (q *qp) send(r *request, number uint64) bool {
	to := q.adverts.totals.At(0)
	switch {
	case r.length > uint64(to.total):
		r.status, r.reason = verbs.WCRemInvReqErr,
			&verbs.LimitError{Name: "the peer's receive", Limit: uint64(to.total), Value: r.length}
		q.say(r, number, wire.Header{Kind: wire.TooLong, Value: r.length}, nil, nil)
		q.last = true
		q.fail(fmt.Errorf("%w: %w", r.status, r.reason))
		return true
	case r.length <= uint64(q.peer.Threshold):
		q.adverts.used()
		h := wire.Header{Kind: wire.Data, Flags: r.wireFlags(), Imm: r.immediate(), Value: r.length}
		switch {
		case r.flags&verbs.SendInline != 0:
			q.say(r, number, h, r.inline, nil)
		case q.staged == number+1:
			q.say(r, number, h, q.stage, nil)
		default:
			q.say(r, number, h, nil, r.sgl)
		}
		return true
	case to.segments == 0:
		return q.sendParts(r, number)
	case q.awaiting > 0:
		return false
	}
	at := cursor{sgl: r.sgl}
	left := r.length
	for i := range to.segments {
		d := q.adverts.segments.At(int(i))
		n := min(left, uint64(d.Length))
		if n == 0 {
			continue
		}
		q.piece(r, number, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: at.take(q, n), RemoteAddr: d.Addr,
			RKey: d.RKey}, -1)
		left -= n
	}
	q.adverts.used()
	q.say(r, number, wire.Header{Kind: wire.Placed, Flags: r.wireFlags(), Imm: r.immediate(), Value: r.length}, nil,
		nil)
	return true
}

func (r *request) immediate() uint32 {
	if r.op == verbs.WRSendWithImm {
		return r.imm
	}
	return 0
}

// sendParts sends data that exceed one message in Parts, as many as the peer has slots for.
func (q *qp) sendParts(r *request, number uint64) bool {
	most := uint64(q.peer.Threshold)
	for r.length-r.sent > most {
		if !q.roomFor() {
			return false
		}
		k := q.nparts % min(manyParts, int(q.peer.Parts))
		if q.partNums[k] > q.taken {
			q.want = max(q.want, q.partNums[k])
			return false
		}
		at := cursor{sgl: r.sgl, skip: r.sent}
		q.say(r, number, wire.Header{Kind: wire.Part, Value: most}, nil, at.take(q, most))
		r.sent += most
		q.partNums[k] = q.sent
		q.nparts++
	}
	if !q.roomFor() {
		return false
	}
	at := cursor{sgl: r.sgl, skip: r.sent}
	n := r.length - r.sent
	q.adverts.used()
	q.say(r, number, wire.Header{Kind: wire.Data, Flags: r.wireFlags(), Imm: r.immediate(), Value: n}, nil,
		at.take(q, n))
	return true
}

// cursor iterates over the elements of a request.
type cursor struct {
	sgl  []verbs.SGE
	skip uint64 // bytes before the position
}

// take returns the elements of the next n bytes.
func (c *cursor) take(q *qp, n uint64) []verbs.SGE {
	at, skip := len(q.arena), c.skip
	c.skip += n
	for _, s := range c.sgl {
		if skip >= uint64(s.Length) {
			skip -= uint64(s.Length)
			continue
		}
		s.Addr += skip
		s.Length = uint32(min(uint64(s.Length)-skip, n))
		skip = 0
		if n -= uint64(s.Length); s.Length > 0 {
			q.arena = append(q.arena, s)
		}
		if n == 0 {
			break
		}
	}
	return q.arena[at:]
}

// landed handles the completion of an inner request.
func (q *qp) landed(p *part, status verbs.WCStatus) {
	if p.slot >= 0 {
		q.slots.give(p.slot)
	}
	if p.answer {
		q.reads--
	}
	if p.own {
		return
	}
	r := q.reqs.At(int(p.req - q.base))
	r.parts--
	switch {
	case status == verbs.WCSuccess:
		if r.native && r.parts == 0 && !r.cut {
			q.placed = max(q.placed, p.req+1)
		}
	case status == verbs.WCWRFlushErr, q.ctx.silent && status != verbs.WCLocProtErr:
		r.cut = true
	case r.status == verbs.WCSuccess:
		r.status = q.refusal(status, r.op)
		switch status {
		case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
			r.remote = true
		}
	}
}

// right returns the access right that an operation needs at the peer.
func right(op verbs.WROpcode) verbs.AccessFlags {
	switch op {
	case verbs.WRRDMARead:
		return verbs.AccessRemoteRead
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		return verbs.AccessRemoteWrite
	case verbs.WRSend, verbs.WRSendWithImm:
		return 0
	}
	return verbs.AccessRemoteAtomic
}

// retire completes finished requests, in order. Requests that failed on the inner device or at the
// peer complete when the connection ends.
func (q *qp) retire() {
	for q.next > 0 {
		r := q.reqs.At(0)
		switch {
		case r.parts > 0 || r.waiting || r.cut:
			return
		case r.refused:
			status, reason := r.status, r.reason
			q.leave(r, status)
			q.fail(fmt.Errorf("%w: %w", status, reason))
			return
		case r.status != verbs.WCSuccess || !q.sure(r, q.base):
			return
		}
		q.leave(r, verbs.WCSuccess)
	}
}

// leave completes the oldest request.
func (q *qp) leave(r *request, status verbs.WCStatus) {
	switch {
	case q.drop:
	case status != verbs.WCSuccess:
		q.sendCQ.push(&verbs.WC{ID: r.id, Status: status, QPNum: q.num}, false)
		if status != verbs.WCWRFlushErr {
			q.blame(r, status)
		}
	case r.signaled:
		wc := verbs.WC{ID: r.id, Opcode: r.op.Completion(), QPNum: q.num}
		if r.op == verbs.WRRDMARead || isAtomic(r.op) {
			wc.ByteLen = uint32(r.length)
		}
		q.sendCQ.push(&wc, false)
	}
	if q.next > 0 {
		q.next--
	}
	q.reqs.Pop()
	q.base++
}

// rnr counts how often the peer had no receive for the request that waits. The peer is queried
// repeatedly, in place of InfiniBand's RNR retries.
type rnr struct {
	number  uint64      // number of the request, plus 1; 0 = none has waited
	asked   uint64      // number of the message whose answer shows whether the peer has a receive; 0 = to be sent
	naks    int         // answers without a receive
	timer   *time.Timer // runs until the next query
	resting bool
}

// rnrTimes are the intervals of min_rnr_timer (ibv_modify_qp(3)) in units of 10 us.
var rnrTimes = [32]int{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
	2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// rnrRetries returns the RNR retry count: the peer's, from connection setup, or for a QP brought up
// manually the attribute of this side.
func (q *qp) rnrRetries() uint8 {
	if q.hand != nil {
		return q.hand.attr.RNRRetry
	}
	return q.peer.RNRRetries
}

// notReady is called when the first request not yet issued may be waiting for a receive of the
// peer.
func (q *qp) notReady() {
	if q.stopped || q.next == q.reqs.Len() || q.rnrRetries() == 7 || q.state == verbs.QPStateSQD {
		return
	}
	r := q.reqs.At(q.next)
	if !r.message || q.ready() {
		return
	}
	switch n := q.rnrOf(q.base + uint64(q.next)); {
	case n.resting || q.asked > q.taken:
	case n.asked == 0:
		n.asked = q.sent + 1
		q.want = max(q.want, n.asked)
	case q.taken >= n.asked && n.naks == int(q.rnrRetries()):
		r.status, r.reason = verbs.WCRNRRetryExcErr, noReceive(n)
		q.issue()
	case q.taken >= n.asked:
		q.restRNR(q.peer.RNRTimer)
	}
}

// rnrOf returns the counters for the waiting request, and resets them if it is a new one.
func (q *qp) rnrOf(number uint64) *rnr {
	n := &q.rnr
	if n.number != number+1 {
		n.number, n.asked, n.naks = number+1, 0, 0
		if n.resting {
			n.timer.Stop()
			n.resting = false
		}
	}
	return n
}

func noReceive(n *rnr) error { return fmt.Errorf("the peer has had no receive %d times", n.naks+1) }

// restRNR waits for the interval of a min_rnr_timer before the next query.
func (q *qp) restRNR(timer uint8) {
	n := &q.rnr
	n.naks++
	n.asked, n.resting = 0, true
	number := n.number
	n.timer = time.AfterFunc(time.Duration(rnrTimes[timer])*10*time.Microsecond, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if n.number == number && n.resting {
			n.resting = false
			q.advance()
		}
	})
}
