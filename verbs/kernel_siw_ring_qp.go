// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/ibverbs/ksiw/ring/queue"
	"github.com/goverbs/goverbs/internal/ibverbs/uverbs"
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

// CreateQP creates a queue pair.
func (pd ringPD) CreateQP(cfg ibverbs.QPConfig) (ibverbs.QP, ibverbs.QPCap, uint32, error) {
	r := pd.r
	want := uverbs.QPConfig{Cookie: cfg.Cookie, PD: pd.Handle(), SendCQ: cfg.SendCQ.(*ringCQ).handle,
		RecvCQ: cfg.RecvCQ.(*ringCQ).handle, Type: uint8(cfg.Type), Cap: uverbs.QPCap(cfg.Cap)}
	if srq, ok := cfg.SRQ.(*ringSRQ); ok {
		want.HasSRQ, want.SRQ = true, srq.handle
	}
	handle, num, has, made, err := uverbs.CreateQP[ringMadeQP](r.fd, want, ringAsked)
	if err != nil {
		return nil, ibverbs.QPCap{}, 0, ringErrno(err)
	}
	q := &ringQP{fd: r.fd, handle: handle, bell: uverbs.NewDoorbell(r.fd, handle)}
	q.ringSends.gather = r.Gather
	if err := q.mapRings(r, &made, want.HasSRQ); err != nil {
		_ = q.Destroy()
		return nil, ibverbs.QPCap{}, 0, ringErrno(err)
	}
	return q, ibverbs.QPCap(has), num, nil
}

// mapRings maps the send queue, and the receive queue if the QP has one.
func (q *ringQP) mapRings(r *ringContext, made *ringMadeQP, shared bool) (err error) {
	if q.sendMem, err = r.mapRing(made.SendKey, queue.SQSize(made.SendEntries)); err != nil {
		return err
	}
	if q.ringSends.ring, err = queue.NewSQ(q.sendMem, made.SendEntries, q.bell.Ring); err != nil {
		return err
	}
	if made.RecvEntries == 0 || shared { // siw reports a number even with an SRQ
		return nil
	}
	if q.recvMem, err = r.mapRing(made.RecvKey, queue.RQSize(made.RecvEntries)); err != nil {
		return err
	}
	q.ringReceives.ring, err = queue.NewRQ(q.recvMem, made.RecvEntries)
	return err
}

// Recv posts a list.
func (q *ringQP) Recv(wrs []ibverbs.Recv, sges []ibverbs.SGE, held *ibverbs.Held) ibverbs.Posted {
	posted := q.ringReceives.post(wrs, sges)
	if held != nil {
		held.Store(0)
	}
	return posted
}

// Modify changes the QP.
func (q *ringQP) Modify(a *ibverbs.QPAttr, mask uint32) error {
	return ringError(uverbs.ModifyQP(q.fd, q.handle, uverbs.QPAttr{State: uint8(a.State), CurState: uint8(a.CurState),
		AccessFlags: a.AccessFlags, Port: a.PortNum, MaxRdAtomic: a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic}, mask))
}

// ringQueryMask selects state, access rights, port and depths. siw ignores the mask and reports
// everything it has.
const ringQueryMask = QPAttrState | QPAttrAccessFlags | QPAttrPort | QPAttrMaxRdAtomic | QPAttrMaxDestRdAtomic

// Query queries the kernel.
func (q *ringQP) Query(attr *ibverbs.QPAttr) error {
	a, err := uverbs.QueryQP(q.fd, q.handle, uint32(ringQueryMask))
	if err != nil {
		return ringErrno(err)
	}
	*attr = ibverbs.QPAttr{State: uint32(a.State), CurState: uint32(a.CurState), AccessFlags: a.AccessFlags,
		PortNum: a.Port, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic}
	return nil
}

// siw has neither windows nor multicast.

// BindMW is refused.
func (q *ringQP) BindMW(uint64, uint8, ibverbs.MW, ibverbs.MR, uint64, uint64, uint32) error {
	return syscall.EOPNOTSUPP
}

// Mcast is refused.
func (q *ringQP) Mcast([16]byte, uint16, bool) error { return syscall.EOPNOTSUPP }

// Destroy destroys the QP.
func (q *ringQP) Destroy() error {
	err := errors.Join(uverbs.DestroyQP(q.fd, q.handle), unmap(q.sendMem), unmap(q.recvMem))
	q.bell.Close()
	return ringError(err)
}
