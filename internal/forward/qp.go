// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// QP is a queue pair (verbs.ProviderQP, ProviderMWBinder).
type QP struct {
	In  *verbs.QP
	ctx *Context

	mu    sync.Mutex // guards the fields below: requests with their objects replaced by the ones below
	list  []verbs.SendWR
	binds []verbs.MWBind
	dests []verbs.UDDest
}

// NewQP creates a QP whose handle is owner.
func (p *PD) NewQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (*QP, error) {
	c := verbs.QPConfig{Type: cfg.Type, Cap: cfg.Cap, SigAll: cfg.SigAll, SendOps: cfg.SendOps}
	var err error
	if c.SendCQ, err = below[verbs.CQ](cfg.SendCQ); err != nil {
		return nil, err
	}
	if c.RecvCQ, err = below[verbs.CQ](cfg.RecvCQ); err != nil {
		return nil, err
	}
	if cfg.SRQ != nil {
		if c.SRQ, err = below[verbs.SRQ](cfg.SRQ); err != nil {
			return nil, err
		}
	}
	in, err := p.In.CreateQP(c)
	if err != nil {
		return nil, err
	}
	p.ctx.owners.m.Store(in, owner)
	return &QP{In: in, ctx: p.ctx}, nil
}

// CreateQP returns a QP that only forwards.
func (p *PD) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	q, err := p.NewQP(owner, cfg)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	return q, q.In.Cap(), nil
}

// Unwrap gives access to the abilities that connection managers and multicast need.
func (q *QP) Unwrap() verbs.ProviderQP { return q.In.Provider() }

func (q *QP) below() *verbs.QP                                      { return q.In }
func (q *QP) Num() uint32                                           { return q.In.Num() }
func (q *QP) PostRecv(wrs []verbs.RecvWR) (int, error)              { return q.In.PostRecv(wrs) }
func (q *QP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error { return q.In.Modify(attr, mask) }
func (q *QP) Query() (verbs.QPAttr, error)                          { return q.In.Query() }
func (q *QP) Err() error                                            { return q.In.Err() }
func (q *QP) Drain(ctx context.Context) error                       { return q.In.Drain(ctx) }

func (q *QP) Destroy() error {
	q.ctx.owners.m.Delete(q.In)
	return q.In.Close()
}

// nameObjects reports whether any request refers to objects of the program.
func nameObjects(wrs []verbs.SendWR) bool {
	for i := range wrs {
		if wrs[i].Bind != nil || wrs[i].UD != nil {
			return true
		}
	}
	return false
}

func (q *QP) PostSend(wrs []verbs.SendWR) (int, error) {
	if !nameObjects(wrs) {
		return q.In.PostSend(wrs)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.translate(wrs)
	n, failed := q.In.PostSend(q.list)
	if failed != nil {
		err = failed
	}
	return n, err
}

// translate fills q.list with the requests, up to the first that refers to an object of another
// device. The caller holds q.mu.
func (q *QP) translate(wrs []verbs.SendWR) error {
	// Requests point into these slices, which must not be reallocated.
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
			to, err := below[verbs.AH](wr.UD.AH.Provider())
			if err != nil {
				q.list = q.list[:i]
				return err
			}
			q.dests = append(q.dests, *wr.UD)
			wr.UD = &q.dests[len(q.dests)-1]
			wr.UD.AH = to
		}
	}
	return nil
}

// bindBelow returns b with the window and the region replaced by the ones below.
func bindBelow(b *verbs.MWBind) (in verbs.MWBind, err error) {
	in = *b
	if in.MW, err = below[verbs.MW](b.MW.Provider()); err != nil {
		return in, err
	}
	in.MR, err = below[verbs.MR](b.MR.Provider())
	return in, err
}

// BindMW implements verbs.ProviderMWBinder.
func (q *QP) BindMW(id uint64, flags verbs.SendFlags, b *verbs.MWBind) (uint32, error) {
	in, err := bindBelow(b)
	if err != nil {
		return 0, err
	}
	if err := q.In.BindMW(id, flags, in); err != nil {
		return 0, err
	}
	return in.MW.RKey(), nil
}
