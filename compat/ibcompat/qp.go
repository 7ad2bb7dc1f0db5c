// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// qp is a queue pair (verbs.ProviderQPBypass, ProviderMWBinder). While nothing is being composed, requests are posted past it.
type qp struct {
	dom  *domain
	in   *verbs.QP
	send *cq
	shut atomic.Bool // requests go through mu

	mu sync.Mutex // guards what follows
	composer
	objects objects
	failing sync.WaitGroup // goroutines that move the QP to ERR
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
	q := &qp{dom: p, in: in, send: send}
	if p.ctx.composed != 0 && cfg.Type == verbs.QPTypeRC {
		if err := q.begin(cfg.SigAll); err != nil {
			return nil, verbs.QPCap{}, errors.Join(err, in.Close())
		}
	}
	p.ctx.owners.Store(in, owner)
	return q, in.Cap(), nil
}

// Unwrap has what connection managers and multicast want of a QP.
func (q *qp) Unwrap() verbs.ProviderQP { return q.in.Provider() }

func (q *qp) Bypass() (*verbs.QP, *atomic.Bool)        { return q.in, &q.shut }
func (q *qp) Num() uint32                              { return q.in.Num() }
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) { return q.in.PostRecv(wrs) }
func (q *qp) Query() (verbs.QPAttr, error)             { return q.in.Query() }
func (q *qp) Err() error                               { return q.in.Err() }
func (q *qp) Drain(ctx context.Context) error          { return q.in.Drain(ctx) }

// PostSend posts what does not go past the QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := q.post(wrs)
	q.settle()
	return n, err
}

// Modify also ends what is being composed: in ERR it is flushed, in RESET forgotten.
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := q.in.Modify(attr, mask); err != nil || mask&verbs.QPAttrState == 0 {
		return err
	}
	switch attr.State {
	case verbs.QPStateErr:
		q.flush()
	case verbs.QPStateReset:
		q.forget()
	}
	return nil
}

// Destroy flushes what is being composed with the rest. Its completions are changed into the program's when they are polled.
func (q *qp) Destroy() error {
	if q.close() && q.in.State() != verbs.QPStateReset {
		if err := q.in.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err == nil {
			q.flush()
		}
	}
	q.dom.ctx.owners.Delete(q.in)
	err := q.in.Close()
	q.end()
	return err
}

// BindMW implements verbs.ProviderMWBinder. The bind cannot wait for a masked atomic, because the new key is its result.
func (q *qp) BindMW(id uint64, flags verbs.SendFlags, b *verbs.MWBind) (uint32, error) {
	inner, err := innerBind(b)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.marks != nil && !q.idle() {
		return 0, fmt.Errorf("%w: a window of type 1 cannot be bound while a masked atomic is being composed", verbs.ErrQueueFull)
	}
	if err := q.in.BindMW(id, flags, inner); err != nil {
		return 0, err
	}
	return inner.MW.RKey(), nil
}

// objects are lists of requests that name objects, with the inner ones in their place.
type objects struct {
	list  []verbs.SendWR
	binds []verbs.MWBind
	dests []verbs.UDDest
}

// pass posts requests to the inner QP. The caller holds mu.
func (q *qp) pass(wrs []verbs.SendWR) (int, error) {
	named := false
	for i := range wrs {
		named = named || wrs[i].Bind != nil || wrs[i].UD != nil
	}
	if !named {
		return q.in.PostSend(wrs)
	}
	list, err := q.objects.inner(wrs)
	n, failed := q.in.PostSend(list)
	if failed != nil {
		err = failed
	}
	return n, err
}

// inner returns the requests with inner objects, as far as what they name is of this device.
func (o *objects) inner(wrs []verbs.SendWR) ([]verbs.SendWR, error) {
	// Requests point into these, so they must not move.
	o.list = append(o.list[:0], wrs...)
	o.binds, o.dests = slices.Grow(o.binds[:0], len(wrs)), slices.Grow(o.dests[:0], len(wrs))
	for i := range o.list {
		wr := &o.list[i]
		if wr.Bind != nil {
			b, err := innerBind(wr.Bind)
			if err != nil {
				return o.list[:i], err
			}
			o.binds = append(o.binds, b)
			wr.Bind = &o.binds[len(o.binds)-1]
		}
		if wr.UD != nil {
			to, err := verbs.Own[*ah](wr.UD.AH.Provider())
			if err != nil {
				return o.list[:i], err
			}
			o.dests = append(o.dests, *wr.UD)
			wr.UD = &o.dests[len(o.dests)-1]
			wr.UD.AH = to.in
		}
	}
	return o.list, nil
}

// innerBind is a bind with the inner window and region.
func innerBind(b *verbs.MWBind) (verbs.MWBind, error) {
	window, err := verbs.Own[*mw](b.MW.Provider())
	if err != nil {
		return verbs.MWBind{}, err
	}
	region, err := verbs.Own[*mr](b.MR.Provider())
	if err != nil {
		return verbs.MWBind{}, err
	}
	inner := *b
	inner.MW, inner.MR = window.in, region.in
	return inner, nil
}
