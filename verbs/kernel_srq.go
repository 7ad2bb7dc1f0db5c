// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "sync"

// kernelSRQ is a shared receive queue.
type kernelSRQ struct {
	ctx    *kernelContext
	owner  *SRQ
	c      deviceSRQ
	cookie uint64

	mu   sync.Mutex // guards what follows
	flat recvList
}

// CreateSRQ makes a shared receive queue.
func (pd *kernelPD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := new(kernelSRQ)
	has, err := s.create(pd, owner, attr, s)
	if err != nil {
		return nil, SRQAttr{}, err
	}
	return s, has, nil
}

// create makes the queue, whose events go to target.
func (s *kernelSRQ) create(pd *kernelPD, owner *SRQ, attr SRQAttr, target asyncTarget) (SRQAttr, error) {
	s.ctx, s.owner = pd.ctx, owner
	if err := pd.ctx.counts.srq.add(); err != nil {
		return SRQAttr{}, err
	}
	s.cookie = newCookie(target)
	var has SRQAttr
	var rc int
	if s.c, has, rc = pd.ctx.queues.createSRQ(pd.c, s.cookie,
		SRQAttr{MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE}); rc != 0 {
		dropCookie(s.cookie)
		pd.ctx.counts.srq.remove()
		return SRQAttr{}, callError("ibv_create_srq", rc)
	}
	return SRQAttr{MaxWR: max(has.MaxWR, attr.MaxWR), MaxSGE: max(has.MaxSGE, attr.MaxSGE)}, nil
}

func (s *kernelSRQ) event(ev *AsyncEvent) { ev.SRQ = s.owner }

// PostRecv hands a list over in one call.
func (s *kernelSRQ) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flat.fill(wrs, 0)
	return s.hand()
}

// hand gives the converted list to the device.
func (s *kernelSRQ) hand() (int, error) {
	return postResult("ibv_post_srq_recv", s.c.receive(s.flat.wrs, s.flat.sges))
}

// Modify changes size or limit.
func (s *kernelSRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	return callError("ibv_modify_srq", s.c.modify(SRQAttr{MaxWR: attr.MaxWR, SRQLimit: attr.SRQLimit}, mask))
}

// Query asks the kernel.
func (s *kernelSRQ) Query() (SRQAttr, error) {
	attr, rc := s.c.query()
	return attr, callError("ibv_query_srq", rc)
}

// Destroy destroys the queue.
func (s *kernelSRQ) Destroy() error {
	err := callError("ibv_destroy_srq", s.c.destroy())
	dropCookie(s.cookie)
	s.ctx.async.Sweep()
	s.ctx.counts.srq.remove()
	return err
}

// recvList is a list of receives as C takes it.
type recvList struct {
	wrs  []flatRecv
	sges []SGE
}

// fill converts wrs. A receive that has fewer than least elements gets others of length 0.
func (l *recvList) fill(wrs []RecvWR, least int) {
	l.wrs, l.sges = l.wrs[:0], l.sges[:0]
	for i := range wrs {
		n := len(wrs[i].SGL)
		l.sges = append(l.sges, wrs[i].SGL...)
		for ; n < least; n++ {
			l.sges = append(l.sges, SGE{})
		}
		l.wrs = append(l.wrs, flatRecv{id: wrs[i].ID, numSGE: uint32(n)})
	}
}
