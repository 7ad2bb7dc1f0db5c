// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// qp is a queue pair (verbs.ProviderQPBypass, ProviderMWBinder). While nothing is being composed,
// requests bypass it.
type qp struct {
	*forward.QP
	dom  *domain
	send *cq
	shut atomic.Bool // requests do not bypass mu

	mu sync.Mutex // guards the following
	composer
	failing sync.WaitGroup // goroutines moving the QP to ERR
}

func (p *domain) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	send, err := verbs.Own[*cq](cfg.SendCQ)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	in, err := p.NewQP(owner, cfg)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	q := &qp{QP: in, dom: p, send: send}
	if p.ctx.composed != 0 && cfg.Type == verbs.QPTypeRC {
		if err := q.begin(cfg.SigAll); err != nil {
			return nil, verbs.QPCap{}, errors.Join(err, in.Destroy())
		}
	}
	return q, in.In.Cap(), nil
}

func (q *qp) Bypass() (*verbs.QP, *atomic.Bool) { return q.In, &q.shut }

// PostSend posts requests that do not bypass the QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := q.post(wrs)
	q.settle()
	return n, err
}

// Modify also ends composing: in ERR its request is flushed, in RESET it is dropped.
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := q.In.Modify(attr, mask); err != nil || mask&verbs.QPAttrState == 0 {
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

// Destroy flushes the request being composed with the others. Their completions are replaced by the
// program's when they are polled.
func (q *qp) Destroy() error {
	if q.close() && q.In.State() != verbs.QPStateReset {
		if err := q.In.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err == nil {
			q.flush()
		}
	}
	err := q.QP.Destroy()
	q.end()
	return err
}

// BindMW implements verbs.ProviderMWBinder. The bind cannot wait for a masked atomic, because it
// returns the new key.
func (q *qp) BindMW(id uint64, flags verbs.SendFlags, b *verbs.MWBind) (uint32, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.marks != nil && !q.idle() {
		return 0, fmt.Errorf("%w: a window of type 1 cannot be bound while a masked atomic is being composed",
			verbs.ErrQueueFull)
	}
	return q.QP.BindMW(id, flags, b)
}

// pass posts requests to the inner QP. The caller holds mu.
func (q *qp) pass(wrs []verbs.SendWR) (int, error) { return q.QP.PostSend(wrs) }
