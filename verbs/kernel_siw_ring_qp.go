// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"syscall"

	"github.com/goverbs/goverbs/internal/siwring"
	"github.com/goverbs/goverbs/internal/uverbs"
)

// ringQP is a queue pair.
type ringQP struct {
	fd               int
	handle           uint32
	sendMem, recvMem []byte
	bell             *uverbs.Doorbell
	ringSends
	ringReceives
}

func (r *ringQueues) createQP(pd rawPD, cfg rawQPConfig) (deviceQP, QPCap, uint32, int) {
	want := uverbs.QPConfig{Cookie: cfg.cookie, PD: pd.handle(), SendCQ: cfg.sendCQ.(*ringCQ).handle,
		RecvCQ: cfg.recvCQ.(*ringCQ).handle, Type: uint8(cfg.typ),
		Cap: uverbs.QPCap{MaxSendWR: uint32(cfg.cap.MaxSendWR), MaxRecvWR: uint32(cfg.cap.MaxRecvWR),
			MaxSendSGE: uint32(cfg.cap.MaxSendSGE), MaxRecvSGE: uint32(cfg.cap.MaxRecvSGE),
			MaxInlineData: uint32(cfg.cap.MaxInlineData)}}
	if srq, ok := cfg.srq.(*ringSRQ); ok {
		want.HasSRQ, want.SRQ = true, srq.handle
	}
	handle, num, has, made, err := uverbs.CreateQP[ringMadeQP](r.fd, want, ringAsked)
	if err != nil {
		return nil, QPCap{}, 0, ringErrno(err)
	}
	q := &ringQP{fd: r.fd, handle: handle, bell: uverbs.NewDoorbell(r.fd, handle)}
	if err := q.mapRings(r, &made, want.HasSRQ); err != nil {
		q.destroy()
		return nil, QPCap{}, 0, ringErrno(err)
	}
	return q, QPCap{MaxSendWR: int(has.MaxSendWR), MaxRecvWR: int(has.MaxRecvWR), MaxSendSGE: int(has.MaxSendSGE),
		MaxRecvSGE: int(has.MaxRecvSGE), MaxInlineData: int(has.MaxInlineData)}, num, 0
}

// mapRings maps the send queue, and the receive queue if the QP has one.
func (q *ringQP) mapRings(r *ringQueues, made *ringMadeQP, shared bool) (err error) {
	if q.sendMem, err = r.mapRing(made.SendKey, siwring.SQSize(made.SendEntries)); err != nil {
		return err
	}
	if q.ringSends.ring, err = siwring.NewSQ(q.sendMem, made.SendEntries, q.bell.Ring); err != nil {
		return err
	}
	if made.RecvEntries == 0 || shared { // siw tells a number with an SRQ too
		return nil
	}
	if q.recvMem, err = r.mapRing(made.RecvKey, siwring.RQSize(made.RecvEntries)); err != nil {
		return err
	}
	q.ringReceives.ring, err = siwring.NewRQ(q.recvMem, made.RecvEntries)
	return err
}

func (q *ringQP) modify(a *QPAttr, mask QPAttrMask) int {
	return ringErrno(uverbs.ModifyQP(q.fd, q.handle, uverbs.QPAttr{State: uint8(a.State), CurState: uint8(a.CurState),
		AccessFlags: uint32(a.AccessFlags), Port: a.PortNum, MaxRdAtomic: uint8(a.MaxRdAtomic),
		MaxDestRdAtomic: uint8(a.MaxDestRdAtomic)},
		uint32(mask)))
}

// ringQueryMask is what a query asks for: state, rights, port and depths. siw tells all that it has
// anyway.
const ringQueryMask = QPAttrState | QPAttrAccessFlags | QPAttrPort | QPAttrMaxRdAtomic | QPAttrMaxDestRdAtomic

func (q *ringQP) query() (QPAttr, int) {
	a, err := uverbs.QueryQP(q.fd, q.handle, uint32(ringQueryMask))
	if err != nil {
		return QPAttr{}, ringErrno(err)
	}
	return QPAttr{State: QPState(a.State), CurState: QPState(a.CurState), AccessFlags: AccessFlags(a.AccessFlags),
		PortNum: a.Port, MaxRdAtomic: int(a.MaxRdAtomic), MaxDestRdAtomic: int(a.MaxDestRdAtomic)}, 0
}

// siw has neither windows nor groups.

func (q *ringQP) bindMW(uint64, SendFlags, rawMW, rawMR, uint64, uint64, AccessFlags) int {
	return int(syscall.EOPNOTSUPP)
}

func (q *ringQP) mcast(GID, uint16, bool) int { return int(syscall.EOPNOTSUPP) }

func (q *ringQP) destroy() int {
	err := errors.Join(uverbs.DestroyQP(q.fd, q.handle), unmap(q.sendMem), unmap(q.recvMem))
	q.bell.Close()
	return ringErrno(err)
}
