// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// errBroken is the cause when the library does not report how many requests of a list it accepted.
var errBroken = errors.New("the library failed and does not tell which requests it took")

// sendList is a list of sends in the form that the device accepts.
type sendList struct {
	wrs  []ibverbs.Send
	sges []ibverbs.SGE
	ext  []ibverbs.Ext
	ud   bool // requests are datagrams
}

// begin makes room for a list.
func (s *sendList) begin(n int) {
	if cap(s.wrs) < n {
		s.wrs = make([]ibverbs.Send, max(n, 2*cap(s.wrs)))
	}
	s.wrs, s.sges, s.ext = s.wrs[:n], s.sges[:0], s.ext[:0]
}

// put converts request i of the list.
func (s *sendList) put(i int, w *SendWR) {
	s.sges = append(s.sges, flatSGEs(w.SGL)...)
	f := &s.wrs[i]
	flatten(f, w)
	if s.ud || w.Opcode > WRRDMARead {
		s.extend(w, f)
	}
}

// fill converts a list.
func (s *sendList) fill(wrs []SendWR) {
	s.begin(len(wrs))
	for i := range wrs {
		s.put(i, &wrs[i])
	}
}

// extend converts the fields that few requests need.
func (s *sendList) extend(w *SendWR, f *ibverbs.Send) {
	var x ibverbs.Ext
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.Imm = w.InvalidateRKey
		return
	case WRAtomicFetchAndAdd:
		x.A = w.Add
	case WRAtomicCmpAndSwp:
		x.A, x.B = w.Compare, w.Swap
	case WRMaskedAtomicFetchAndAdd:
		x.A, x.P = w.Add, w.AddMask
	case WRMaskedAtomicCmpAndSwp:
		x.A, x.B, x.P, x.Q = w.Compare, w.Swap, w.CompareMask, w.SwapMask
	case WRImmData:
		x.A = w.Imm64
	case WRAtomicWrite:
		x.A = w.Swap
	case WRBindMW:
		f.Imm = 0
		x.P = ownMW(w.Bind).c.Handle()
		x.Q = ownMR(w.Bind).c.Handle()
		x.A, x.B = w.Bind.Addr, w.Bind.Length
		x.C, x.D = w.RKey, uint32(w.Bind.Access)
	default:
		x.P = ownAH(w.UD).c.Handle()
		x.C, x.D = w.UD.RemoteQPN, w.UD.RemoteQKey
	}
	s.ext = append(s.ext, x)
	f.Ext = uint32(len(s.ext))
}

// flatten converts the fields that all requests have.
func flatten(f *ibverbs.Send, w *SendWR) {
	f.ID, f.RemoteAddr, f.RKey, f.Imm = w.ID, w.RemoteAddr, w.RKey, w.Imm
	f.Op, f.Ext = flatOp(w.Opcode, w.Flags&^SendRelaxed, len(w.SGL)), 0
}

func flatOp(op WROpcode, flags SendFlags, sges int) uint32 {
	return ibverbs.MakeOp(uint8(op), uint8(flags), sges)
}

// Errors of posting to a QP in too early a state.

func sendsBefore(st QPState) error {
	return &StateError{State: st, Why: "sends can be posted from RTS on"}
}

func recvsBefore(st QPState) error {
	return &StateError{State: st, Why: "receives can be posted from INIT on"}
}

// postResult converts the result of a post to a count and an error.
func postResult(call string, res ibverbs.Posted) (int, error) {
	taken, why := int(uint32(res)), uint32(res>>32)
	switch {
	case why == 0:
		return taken, nil
	case why == ibverbs.Broken:
		return taken, fmt.Errorf("%s: %w", call, errBroken)
	case why&ibverbs.Broken != 0:
		return taken, fmt.Errorf("%w: %w", errBroken, callError(call, syscall.Errno(why&^ibverbs.Broken)))
	}
	return taken, postError(call, syscall.Errno(why))
}

// postError returns the error for a request that the device refused with this errno.
func postError(call string, why error) error {
	err := callError(call, why)
	if why == syscall.ENOMEM || why == syscall.ENOSPC { // some drivers answer a WRAtomicWrite with ENOSPC
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}

// simpleOps returns, by opcode, the flags allowed on single-element requests that need no check
// besides their flags; 0 = none.
func simpleOps(q *QP) (t [256]uint8) {
	for _, op := range []WROpcode{WRSend, WRSendWithImm, WRRDMAWrite, WRRDMAWriteWithImm, WRRDMARead} {
		if q.typ == QPTypeUD || !q.ops.Has(opOf[op]) || op == WRRDMARead && q.maxRd < 1 {
			continue
		}
		t[op] = uint8(SendFence | SendSignaled | SendSolicited)
	}
	return t
}

// putSimple converts the requests at the head of wrs that need no other check, into the list from
// index i on, and returns how many.
func (s *sendQueue) putSimple(wrs []SendWR, i int, sges []ibverbs.SGE) int {
	simple, flat := s.simple, s.wrs[i:]
	n := min(len(wrs), len(sges), len(flat))
	wrs, sges, flat = wrs[:n], sges[:n], flat[:n]
	for i := range wrs {
		w := &wrs[i]
		if fl := simple[w.Opcode]; fl == 0 || len(w.SGL) != 1 || uint8(w.Flags)&^fl != 0 ||
			w.room != 0 && uint64(w.SGL[0].Length) >= w.room {
			return i
		}
		sges[i] = ibverbs.SGE(w.SGL[0])
		flatten(&flat[i], w)
	}
	return n
}

func (q *kernelQP) canPostDirect() bool { return true }

// PostSend posts a list in one call.
func (q *kernelQP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if own, err := q.ownObjects(wrs); err != nil {
		n, failed := q.PostSend(wrs[:own])
		return n, cmp.Or(failed, err)
	}
	return q.postSendDirect(q.owner, wrs)
}

// PostRecv posts a list in one call.
func (q *kernelQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	return q.postRecvDirect(q.owner, wrs)
}

// postSendDirect checks and converts a list in one pass and posts it in one call.
func (q *kernelQP) postSendDirect(h *QP, wrs []SendWR) (int, error) {
	s := &q.send
	s.direct.Lock()
	if h.node.Closed() {
		s.direct.Unlock()
		return 0, ErrClosed
	}
	if s.simple == nil {
		t := simpleOps(h)
		s.simple = &t
	}
	s.begin(len(wrs))
	if cap(s.sges) < len(wrs) {
		s.sges = make([]ibverbs.SGE, 0, len(wrs))
	}
	var refused error
	good, k, bound := 0, 0, false
	sges := s.sges[:cap(s.sges)]
	for {
		n := s.putSimple(wrs[good:], good, sges[k:])
		good, k = good+n, k+n
		if good == len(wrs) {
			break
		}
		w := &wrs[good]
		if refused = h.checkSend(w); refused != nil {
			break
		}
		s.sges = sges[:k]
		s.put(good, w)
		good, k, sges = good+1, len(s.sges), s.sges[:cap(s.sges)]
		bound = bound || w.Opcode == WRBindMW
	}
	if good == 0 {
		s.direct.Unlock()
		return 0, refused
	}
	if st := q.qpState(); st < QPStateRTS {
		s.direct.Unlock()
		return 0, sendsBefore(st)
	}
	s.wrs = s.wrs[:good]
	atEnd := s.direct.AtEnd()
	if bound {
		atEnd = nil
	}
	res := q.c.Send(s.wrs, sges, s.ext, atEnd)
	if atEnd == nil {
		if bound {
			rekey(wrs[:uint32(res)])
		}
		s.direct.Unlock()
	}
	if res == ibverbs.Posted(len(wrs)) {
		return len(wrs), nil
	}
	return q.postedPart("ibv_post_send", res, refused)
}

// postRecvDirect is postSendDirect for receives.
func (q *kernelQP) postRecvDirect(h *QP, wrs []RecvWR) (int, error) {
	r := &q.recv
	r.direct.Lock()
	if h.node.Closed() {
		r.direct.Unlock()
		return 0, ErrClosed
	}
	good, refused := checkRecv(wrs, q.cap.MaxRecvSGE)
	if good == 0 {
		r.direct.Unlock()
		return 0, refused
	}
	if st := q.qpState(); st == QPStateReset {
		r.direct.Unlock()
		return 0, recvsBefore(st)
	}
	r.flat.fill(wrs[:good], 0)
	atEnd := r.direct.AtEnd()
	res := q.c.Recv(r.flat.wrs, r.flat.sges, atEnd)
	if atEnd == nil {
		r.direct.Unlock()
	}
	if res == ibverbs.Posted(len(wrs)) {
		return len(wrs), nil
	}
	return q.postedPart("ibv_post_recv", res, refused)
}

// postedPart returns the result of a partial post: the error refused, unless the library failed on
// an earlier request.
func (q *kernelQP) postedPart(call string, res ibverbs.Posted, refused error) (int, error) {
	n, err := postResult(call, res)
	switch {
	case err == nil:
		err = refused
	case errors.Is(err, errBroken):
		go q.fail(err)
	}
	return n, err
}

// BindMW posts the bind of a type 1 window.
func (q *kernelQP) BindMW(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	if err := checkBinding(b); err != nil {
		return 0, err
	}
	q.send.direct.Lock()
	defer q.send.direct.Unlock()
	if st := q.qpState(); st < QPStateRTS {
		return 0, bindsBefore(st)
	}
	return q.bind(id, flags, b)
}

// bind posts the bind to the device.
func (q *kernelQP) bind(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	mw := ownMW(b)
	if err := q.c.BindMW(id, uint8(flags), mw.c, ownMR(b).c, b.Addr, b.Length, uint32(b.Access)); err != nil {
		return 0, postError("ibv_bind_mw", err)
	}
	return mw.c.RKey(), nil
}

func bindsBefore(st QPState) error {
	return &StateError{State: st, Why: "windows can be bound from RTS on"}
}
