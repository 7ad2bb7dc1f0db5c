// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"sync"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelSRQ is a shared receive queue.
type kernelSRQ struct {
	ctx    *kernelContext
	owner  *SRQ
	c      ibverbs.SRQ
	cookie uint64

	mu   sync.Mutex // guards the fields below
	flat recvList
}

// CreateSRQ creates a shared receive queue.
func (pd *kernelPD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := new(kernelSRQ)
	has, err := s.create(pd, owner, attr, s)
	if err != nil {
		return nil, SRQAttr{}, err
	}
	return s, has, nil
}

// create creates the queue. Its events go to target.
func (s *kernelSRQ) create(pd *kernelPD, owner *SRQ, attr SRQAttr, target asyncTarget) (SRQAttr, error) {
	s.ctx, s.owner = pd.ctx, owner
	if err := pd.ctx.counts.srq.add(); err != nil {
		return SRQAttr{}, err
	}
	s.cookie = newCookie(target)
	c, has, err := pd.c.CreateSRQ(s.cookie, flatSRQAttr(SRQAttr{MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE}))
	if err != nil {
		dropCookie(s.cookie)
		pd.ctx.counts.srq.remove()
		return SRQAttr{}, callError("ibv_create_srq", err)
	}
	s.c = c
	return SRQAttr{MaxWR: max(int(has.MaxWR), attr.MaxWR), MaxSGE: max(int(has.MaxSGE), attr.MaxSGE)}, nil
}

func (s *kernelSRQ) event(ev *AsyncEvent) { ev.SRQ = s.owner }

// PostRecv posts a list in one call.
func (s *kernelSRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flat.fill(wrs, 0)
	return s.hand()
}

// hand posts the converted list to the device.
func (s *kernelSRQ) hand() (int, error) {
	return postResult("ibv_post_srq_recv", s.c.Recv(s.flat.wrs, s.flat.sges))
}

// Modify changes the size or the limit.
func (s *kernelSRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	return callError("ibv_modify_srq",
		s.c.Modify(flatSRQAttr(SRQAttr{MaxWR: attr.MaxWR, SRQLimit: attr.SRQLimit}), uint32(mask)))
}

// Query queries the kernel.
func (s *kernelSRQ) Query() (SRQAttr, error) {
	attr, err := s.c.Query()
	return publicSRQAttr(attr), callError("ibv_query_srq", err)
}

// Destroy destroys the queue.
func (s *kernelSRQ) Destroy() error {
	err := callError("ibv_destroy_srq", s.c.Destroy())
	dropCookie(s.cookie)
	s.ctx.async.Sweep()
	s.ctx.counts.srq.remove()
	return err
}

// recvList is a list of receives in the form that the device accepts.
type recvList struct {
	wrs  []ibverbs.Recv
	sges []ibverbs.SGE
}

// fill converts wrs. A receive with fewer than least elements is padded with elements of length 0.
func (l *recvList) fill(wrs []RecvWR, least int) {
	l.wrs, l.sges = l.wrs[:0], l.sges[:0]
	for i := range wrs {
		n := len(wrs[i].SGL)
		l.sges = append(l.sges, flatSGEs(wrs[i].SGL)...)
		for ; n < least; n++ {
			l.sges = append(l.sges, ibverbs.SGE{})
		}
		l.wrs = append(l.wrs, ibverbs.Recv{ID: wrs[i].ID, NumSGE: uint32(n)})
	}
}
