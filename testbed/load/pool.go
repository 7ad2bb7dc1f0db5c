// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

const (
	poolSlots = 128 // receives in a shared receive queue
	poolUses  = 10  // connections that a shared receive queue serves before it is replaced
)

// pool is a shared receive queue with its memory. A connection that is cut off loses the receives
// it has consumed, so a pool serves a limited number of connections.
type pool struct {
	srq  *verbs.SRQ
	mr   *verbs.MR
	uses int // total number of connections
	refs int // current number of connections
}

// takePool returns the current pool, or nil if the device has no shared receive queues.
func (n *Node) takePool() (*pool, error) {
	attr, err := n.ctx.QueryDevice()
	if err != nil || attr.MaxSRQ == 0 {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pool == nil {
		if n.pool, err = n.newPool(); err != nil {
			return nil, err
		}
		n.counts.Add("srq", 1)
	}
	p := n.pool
	p.uses++
	p.refs++
	if p.uses == poolUses {
		n.pool = nil
	}
	return p, nil
}

// givePool releases a pool. It is closed after its last connection.
func (n *Node) givePool(p *pool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.refs--; p.refs == 0 && n.pool != p {
		return p.close()
	}
	return nil
}

func (n *Node) newPool() (p *pool, err error) {
	p = new(pool)
	if p.mr, err = n.pd.AllocMR(poolSlots*slotLen, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if p.srq, err = n.pd.CreateSRQ(verbs.SRQAttr{MaxWR: poolSlots, MaxSGE: 1}); err != nil {
		return nil, errors.Join(err, p.mr.Close())
	}
	for i := range poolSlots {
		if err := p.post(i); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func (p *pool) post(slot int) error {
	_, err := p.srq.PostRecv([]verbs.RecvWR{recvOf(p.mr, slot)})
	return err
}

func (p *pool) close() error { return errors.Join(p.srq.Close(), p.mr.Close()) }
