// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// qp is a queue pair (verbs.ProviderQP, ProviderMWBinder).
type qp struct {
	ctx *vcontext
	in  *verbs.QP

	mu    sync.Mutex // guards what follows: lists that name objects, with those below in their place
	list  []verbs.SendWR
	binds []verbs.MWBind
	dests []verbs.UDDest
}

func (p *domain) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	below := verbs.QPConfig{Type: cfg.Type, Cap: cfg.Cap, SigAll: cfg.SigAll}
	send, err := verbs.Own[*cq](cfg.SendCQ)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	recv, err := verbs.Own[*cq](cfg.RecvCQ)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	below.SendCQ, below.RecvCQ = send.in, recv.in
	if cfg.SRQ != nil {
		shared, err := verbs.Own[*srq](cfg.SRQ)
		if err != nil {
			return nil, verbs.QPCap{}, err
		}
		below.SRQ = shared.in
	}
	in, err := p.in.CreateQP(below)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	p.ctx.owners.Store(in, owner)
	return &qp{ctx: p.ctx, in: in}, in.Cap(), nil
}

// Unwrap has what connection managers and multicast want of a QP.
func (q *qp) Unwrap() verbs.ProviderQP { return q.in.Provider() }

func (q *qp) Num() uint32                                           { return q.in.Num() }
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error)              { return q.in.PostRecv(wrs) }
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error { return q.in.Modify(attr, mask) }
func (q *qp) Query() (verbs.QPAttr, error)                          { return q.in.Query() }
func (q *qp) Err() error                                            { return q.in.Err() }
func (q *qp) Drain(ctx context.Context) error                       { return q.in.Drain(ctx) }

func (q *qp) Destroy() error {
	q.ctx.owners.Delete(q.in)
	return q.in.Close()
}

// nameObjects reports whether requests name objects of the program's.
func nameObjects(wrs []verbs.SendWR) bool {
	for i := range wrs {
		if wrs[i].Bind != nil || wrs[i].UD != nil {
			return true
		}
	}
	return false
}

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	if !nameObjects(wrs) {
		return q.in.PostSend(wrs)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.translate(wrs)
	n, failed := q.in.PostSend(q.list)
	if failed != nil {
		err = failed
	}
	return n, err
}

// translate fills list with the requests, as far as the objects that they name are of this device. The caller holds q.mu.
func (q *qp) translate(wrs []verbs.SendWR) error {
	// Requests point into these, so they must not move.
	q.list = append(q.list[:0], wrs...)
	q.binds, q.dests = slices.Grow(q.binds[:0], len(wrs)), slices.Grow(q.dests[:0], len(wrs))
	for i := range q.list {
		wr := &q.list[i]
		if wr.Bind != nil {
			b, err := bindBelow(wr.Bind)
			if err != nil {
				q.list = q.list[:i]
				return err
			}
			q.binds = append(q.binds, b)
			wr.Bind = &q.binds[len(q.binds)-1]
		}
		if wr.UD != nil {
			to, err := verbs.Own[*ah](wr.UD.AH.Provider())
			if err != nil {
				q.list = q.list[:i]
				return err
			}
			q.dests = append(q.dests, *wr.UD)
			wr.UD = &q.dests[len(q.dests)-1]
			wr.UD.AH = to.in
		}
	}
	return nil
}

// bindBelow is a bind with the window and the region below.
func bindBelow(b *verbs.MWBind) (verbs.MWBind, error) {
	window, err := verbs.Own[*mw](b.MW.Provider())
	if err != nil {
		return verbs.MWBind{}, err
	}
	region, err := verbs.Own[*mr](b.MR.Provider())
	if err != nil {
		return verbs.MWBind{}, err
	}
	below := *b
	below.MW, below.MR = window.in, region.in
	return below, nil
}

// BindMW implements verbs.ProviderMWBinder.
func (q *qp) BindMW(id uint64, flags verbs.SendFlags, b *verbs.MWBind) (uint32, error) {
	below, err := bindBelow(b)
	if err != nil {
		return 0, err
	}
	if err := q.in.BindMW(id, flags, below); err != nil {
		return 0, err
	}
	return below.MW.RKey(), nil
}
