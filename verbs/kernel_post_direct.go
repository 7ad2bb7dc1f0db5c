// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"cmp"
	"errors"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// simpleOps returns for each opcode the flags of requests of one element that need no other check:
// of such a list nothing but the flags is looked at. 0 = there are none.
func simpleOps(q *QP) (t [256]uint8) {
	for _, op := range []WROpcode{WRSend, WRSendWithImm, WRRDMAWrite, WRRDMAWriteWithImm, WRRDMARead} {
		if q.typ == QPTypeUD || !q.ops.Has(opOf[op]) || op == WRRDMARead && q.maxRd < 1 {
			continue
		}
		t[op] = uint8(SendFence | SendSignaled | SendSolicited)
	}
	return t
}

// putSimple converts the requests at the head of a list that need no other check, from the ith on,
// and returns how many.
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

// PostSend hands a list over in one call.
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

// PostRecv hands a list over in one call.
func (q *kernelQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	return q.postRecvDirect(q.owner, wrs)
}

// postSendDirect checks and converts a list in one pass, and hands it over in one call.
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
	atEnd := s.direct.atEnd()
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
	atEnd := r.direct.atEnd()
	res := q.c.Recv(r.flat.wrs, r.flat.sges, atEnd)
	if atEnd == nil {
		r.direct.Unlock()
	}
	if res == ibverbs.Posted(len(wrs)) {
		return len(wrs), nil
	}
	return q.postedPart("ibv_post_recv", res, refused)
}

// postedPart is the end of a post of which not all was taken: refused, unless the library did not
// take what came before.
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
