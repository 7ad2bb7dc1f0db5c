// SPDX-License-Identifier: BSD-3-Clause

package ibverbstest

import (
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

type qp struct {
	pd           *pd
	cookie       uint64
	num          uint32
	sendCQ, recv *cq
	sigAll       bool
	cap          ibverbs.QPCap
	attr         ibverbs.QPAttr
	sends        []send // in order; the oldest waits for a receive of the peer
	recvs        []receive
}

// send is a pending request. Inline data were copied when it was posted.
type send struct {
	ibverbs.Send
	sges []ibverbs.SGE
	data []byte // inline
}

type receive struct {
	id   uint64
	sges []ibverbs.SGE
}

func (p *pd) CreateQP(cfg ibverbs.QPConfig) (ibverbs.QP, ibverbs.QPCap, uint32, error) {
	d := p.c.d
	sendCQ, ok := cfg.SendCQ.(*cq)
	recvCQ, ok2 := cfg.RecvCQ.(*cq)
	c := cfg.Cap
	switch {
	case !ok, !ok2, cfg.Type != 2, c.MaxSendWR > maxWR, c.MaxRecvWR > maxWR, c.MaxSendSGE > maxSGE,
		c.MaxRecvSGE > maxSGE, c.MaxInlineData > maxInline:
		return nil, ibverbs.QPCap{}, 0, syscall.EINVAL
	case cfg.SRQ != nil, cfg.AtomicWrite:
		return nil, ibverbs.QPCap{}, 0, syscall.EOPNOTSUPP
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	q := &qp{pd: p, cookie: cfg.Cookie, num: d.last, sendCQ: sendCQ, recv: recvCQ, sigAll: cfg.SigAll, cap: c}
	d.qps[q.num] = q
	return q, c, q.num, nil
}

func (q *qp) Destroy() error {
	q.pd.c.d.mu.Lock()
	defer q.pd.c.d.mu.Unlock()
	delete(q.pd.c.d.qps, q.num)
	return nil
}

func (q *qp) Query(a *ibverbs.QPAttr) error {
	q.pd.c.d.mu.Lock()
	defer q.pd.c.d.mu.Unlock()
	*a = q.attr
	a.CurState, a.Cap = a.State, q.cap
	return nil
}

func (q *qp) Modify(a *ibverbs.QPAttr, mask uint32) error {
	q.pd.c.d.mu.Lock()
	defer q.pd.c.d.mu.Unlock()
	if mask&ibverbs.AttrDestQPN != 0 {
		q.attr.DestQPNum = a.DestQPNum
	}
	if mask&ibverbs.AttrAccessFlags != 0 {
		q.attr.AccessFlags = a.AccessFlags
	}
	if mask&ibverbs.AttrState == 0 {
		return nil
	}
	switch q.attr.State = a.State; a.State {
	case ibverbs.StateReset:
		q.attr, q.sends, q.recvs = ibverbs.QPAttr{}, nil, nil
	case ibverbs.StateErr:
		q.flush()
	}
	return nil
}

func (*qp) BindMW(uint64, uint8, ibverbs.MW, ibverbs.MR, uint64, uint64, uint32) error {
	return syscall.EOPNOTSUPP
}

func (*qp) Mcast([16]byte, uint16, bool) error { return syscall.EOPNOTSUPP }

func (q *qp) Send(wrs []ibverbs.Send, sges []ibverbs.SGE, _ []ibverbs.Ext, held *ibverbs.Held) ibverbs.Posted {
	q.pd.c.d.mu.Lock()
	defer q.pd.c.d.mu.Unlock()
	if held != nil {
		defer held.Store(0)
	}
	for i := range wrs {
		if len(q.sends) == int(q.cap.MaxSendWR) {
			return ibverbs.Refused(i, syscall.ENOMEM)
		}
		s := send{Send: wrs[i]}
		own := sges[:s.Elements()]
		sges = sges[len(own):]
		if s.Flags()&ibverbs.FlagInline != 0 {
			s.data = make([]byte, total(own))
			gather(s.data, own)
		} else {
			s.sges = append(s.sges, own...)
		}
		q.sends = append(q.sends, s)
		q.run()
	}
	return ibverbs.Posted(len(wrs))
}

func (q *qp) Recv(wrs []ibverbs.Recv, sges []ibverbs.SGE, held *ibverbs.Held) ibverbs.Posted {
	d := q.pd.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if held != nil {
		defer held.Store(0)
	}
	for i := range wrs {
		if len(q.recvs) == int(q.cap.MaxRecvWR) {
			return ibverbs.Refused(i, syscall.ENOMEM)
		}
		own := sges[:wrs[i].NumSGE]
		sges = sges[len(own):]
		q.recvs = append(q.recvs, receive{wrs[i].ID, append([]ibverbs.SGE(nil), own...)})
		if q.attr.State == ibverbs.StateErr {
			q.flush()
		} else if peer := d.qps[q.attr.DestQPNum]; peer != nil && q.attr.State >= ibverbs.StateRTR {
			peer.run()
		}
	}
	return ibverbs.Posted(len(wrs))
}

// flush completes all posted requests of a QP in ERR with the flush status.
func (q *qp) flush() {
	for _, s := range q.sends {
		q.sendCQ.put(ibverbs.WC{ID: s.ID, Status: ibverbs.Flushed, QPNum: q.num}, false)
	}
	for _, r := range q.recvs {
		q.recv.put(ibverbs.WC{ID: r.id, Status: ibverbs.Flushed, QPNum: q.num}, false)
	}
	q.sends, q.recvs = nil, nil
}

// fail moves the QP to ERR.
func (q *qp) fail() {
	q.attr.State = ibverbs.StateErr
	q.flush()
}

// run executes posted requests until one must wait for a receive.
func (q *qp) run() {
	for len(q.sends) > 0 && q.attr.State == ibverbs.StateRTS {
		s := q.sends[0]
		status, wait := q.execute(&s)
		if wait {
			return
		}
		q.sends = q.sends[1:]
		wc := ibverbs.WC{ID: s.ID, Status: status, QPNum: q.num}
		switch s.Opcode() {
		case ibverbs.OpWrite, ibverbs.OpWriteImm:
			wc.Opcode = ibverbs.WCWrite
		case ibverbs.OpRead:
			wc.Opcode, wc.ByteLen = ibverbs.WCRead, total(s.sges)
		}
		if status != ibverbs.Success || q.sigAll || s.Flags()&ibverbs.FlagSignaled != 0 {
			q.sendCQ.put(wc, false)
		}
		if status != ibverbs.Success {
			q.fail()
		}
	}
	if q.attr.State == ibverbs.StateErr {
		q.flush()
	}
}

// execute executes a request and returns its status, or reports that it must wait: for the peer to
// be ready, or to post a receive.
func (q *qp) execute(s *send) (status uint8, wait bool) {
	d := q.pd.c.d
	peer := d.qps[q.attr.DestQPNum]
	if peer == nil || peer.attr.State < ibverbs.StateRTR || peer.attr.State == ibverbs.StateErr {
		return 0, true
	}
	op := s.Opcode()
	mine, status := q.local(s, op == ibverbs.OpRead)
	if status != ibverbs.Success {
		return status, false
	}
	switch op {
	case ibverbs.OpSend, ibverbs.OpSendImm:
	case ibverbs.OpWrite, ibverbs.OpWriteImm, ibverbs.OpRead:
		rights := uint32(ibverbs.AccessRemoteWrite)
		if op == ibverbs.OpRead {
			rights = ibverbs.AccessRemoteRead
		}
		n := length(mine)
		theirs, ok := d.find(peer.pd, s.RKey, s.RemoteAddr, n, rights)
		if !ok || n > 0 && peer.attr.AccessFlags&rights == 0 {
			peer.pd.c.put(ibverbs.Event{Type: ibverbs.EventQPAccessErr, Cookie: peer.cookie})
			peer.fail()
			return ibverbs.RemAccessErr, false
		}
		if op == ibverbs.OpWriteImm && len(peer.recvs) == 0 {
			return 0, true
		}
		for _, m := range mine {
			if op == ibverbs.OpRead {
				theirs = theirs[copy(m, theirs):]
			} else {
				theirs = theirs[copy(theirs, m):]
			}
		}
		if op != ibverbs.OpWriteImm {
			return ibverbs.Success, false
		}
	default:
		return ibverbs.LocQPOpErr, false
	}
	if len(peer.recvs) == 0 {
		return 0, true
	}
	return peer.receive(s, mine), false
}

// local returns the memory of a request's elements, or an error status.
func (q *qp) local(s *send, write bool) (parts [][]byte, status uint8) {
	if s.data != nil {
		return [][]byte{s.data}, ibverbs.Success
	}
	rights := uint32(0)
	if write {
		rights = ibverbs.AccessLocalWrite
	}
	for _, e := range s.sges {
		m, ok := q.pd.c.d.find(q.pd, e.LKey, e.Addr, e.Length, rights)
		if !ok {
			return nil, ibverbs.LocProtErr
		}
		parts = append(parts, m)
	}
	return parts, ibverbs.Success
}

// receive completes the oldest receive with a message and returns the status of the peer's request.
func (q *qp) receive(s *send, parts [][]byte) uint8 {
	r := q.recvs[0]
	q.recvs = q.recvs[1:]
	wc := ibverbs.WC{ID: r.id, Opcode: ibverbs.WCRecv, ByteLen: length(parts), QPNum: q.num}
	switch s.Opcode() {
	case ibverbs.OpSendImm, ibverbs.OpWriteImm:
		wc.Flags, wc.Imm = ibverbs.WCWithImm, s.Imm
	}
	status := uint8(ibverbs.Success)
	if s.Opcode() == ibverbs.OpWriteImm {
		wc.Opcode = ibverbs.WCRecvWithImm
	} else if wc.Status = q.scatter(r.sges, parts); wc.Status != ibverbs.Success {
		status = ibverbs.RemInvReqErr
	}
	q.recv.put(wc, s.Flags()&ibverbs.FlagSolicited != 0)
	if wc.Status != ibverbs.Success {
		q.fail()
	}
	return status
}

// scatter copies a message to the elements of a receive and returns the status of the receive.
func (q *qp) scatter(sges []ibverbs.SGE, parts [][]byte) uint8 {
	if length(parts) > total(sges) {
		return ibverbs.LocLenErr
	}
	var to []byte
	for _, from := range parts {
		for len(from) > 0 {
			for len(to) == 0 {
				m, ok := q.pd.c.d.find(q.pd, sges[0].LKey, sges[0].Addr, sges[0].Length, ibverbs.AccessLocalWrite)
				if !ok {
					return ibverbs.LocProtErr
				}
				to, sges = m, sges[1:]
			}
			n := copy(to, from)
			to, from = to[n:], from[n:]
		}
	}
	return ibverbs.Success
}

func total(sges []ibverbs.SGE) (n uint32) {
	for _, e := range sges {
		n += e.Length
	}
	return n
}

func length(parts [][]byte) (n uint32) {
	for _, p := range parts {
		n += uint32(len(p))
	}
	return n
}

func gather(to []byte, from []ibverbs.SGE) {
	for _, e := range from {
		to = to[copy(to, memory(e.Addr, e.Length)):]
	}
}
