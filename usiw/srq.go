// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// srq is a shared receive queue (verbs.ProviderSRQ). When the first segment of a message arrives,
// the QP's receive role takes a request from the queue. From then on the request belongs to that QP
// and completes in its CQ, even if the message fails. Requests not yet taken stay in the queue when
// a QP fails. Each QP numbers the messages of its own stream.
type srq struct {
	dev   *device
	ctx   *vcontext
	owner *verbs.SRQ
	rq    recvQueue // its keys are checked in the PD of the SRQ
}

// CreateSRQ implements verbs.ProviderSRQAllocator.
func (p *domain) CreateSRQ(owner *verbs.SRQ, attr verbs.SRQAttr) (verbs.ProviderSRQ, verbs.SRQAttr, error) {
	if p.dev.guard.Closed() {
		return nil, verbs.SRQAttr{}, verbs.ErrClosed
	}
	if err := p.dev.srqs.take(); err != nil {
		return nil, verbs.SRQAttr{}, err
	}
	s := &srq{dev: p.dev, ctx: p.ctx, owner: owner}
	s.rq.init(p, attr.MaxWR, attr.MaxSGE)
	s.rq.name = "max_srq_wr"
	s.rq.low = func() { s.ctx.events.Post(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s.owner}) }
	return s, attr, nil
}

func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return s.rq.post(wrs) }

// Modify changes all attributes in mask, or none if one is invalid.
func (s *srq) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	r := &s.rq
	r.mu.Lock()
	defer r.mu.Unlock()
	size, watermark := r.limit, r.watermark
	if mask&verbs.SRQAttrMaxWR != 0 {
		size = uint(attr.MaxWR)
	}
	if mask&verbs.SRQAttrLimit != 0 {
		watermark = uint(attr.SRQLimit)
	}
	switch held := r.tail - r.head; {
	case size < held:
		return fmt.Errorf("%w: max_srq_wr %d: %d receives are in the queue", verbs.ErrInvalid, size, held)
	case watermark > size:
		return fmt.Errorf("%w: srq_limit %d is more than max_srq_wr %d", verbs.ErrInvalid, watermark, size)
	}
	r.limit, r.watermark = size, watermark
	return nil
}

func (s *srq) Query() (verbs.SRQAttr, error) {
	r := &s.rq
	r.mu.Lock()
	defer r.mu.Unlock()
	return verbs.SRQAttr{MaxWR: int(r.limit), MaxSGE: r.maxSGE, SRQLimit: int(r.watermark)}, nil
}

func (s *srq) Destroy() error {
	s.rq.clear()
	s.dev.srqs.give()
	s.ctx.events.Sweep()
	return nil
}
