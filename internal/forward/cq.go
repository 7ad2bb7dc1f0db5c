// SPDX-License-Identifier: BSD-3-Clause

package forward

import "github.com/goverbs/goverbs/verbs"

// CQ is a completion queue (verbs.ProviderCQ). It has no Unwrap method, because a type that embeds
// it and holds completions of its own must not have one: how the device below sleeps says nothing
// about them.
type CQ struct {
	In  *verbs.CQ
	ctx *Context
}

// NewCQ creates a CQ whose handle is owner.
func (c *Context) NewCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel, vector int) (*CQ, error) {
	to, err := below[verbs.CompChannel](ch)
	if err != nil {
		return nil, err
	}
	in, err := c.In.CreateCQ(verbs.CQConfig{CQE: cqe, Channel: to, CompVector: vector})
	if err != nil {
		return nil, err
	}
	c.owners.m.Store(in, owner)
	return &CQ{in, c}, nil
}

func (c *CQ) below() *verbs.CQ                   { return c.In }
func (c *CQ) Poll(wcs []verbs.WC) (int, error)   { return c.In.Poll(wcs) }
func (c *CQ) ReqNotify(solicitedOnly bool) error { return c.In.ReqNotify(solicitedOnly) }
func (c *CQ) CQE() int                           { return c.In.CQE() }

func (c *CQ) Destroy() error {
	c.ctx.owners.m.Delete(c.In)
	return c.In.Close()
}

// plainCQ is a CQ that holds no completions of its own.
type plainCQ struct{ *CQ }

// Unwrap gives access to resizing and to the way the device sleeps in CQ.Wait.
func (c plainCQ) Unwrap() verbs.ProviderCQ { return c.In.Provider() }

// CreateCQ returns a CQ that only forwards.
func (c *Context) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	in, err := c.NewCQ(owner, cqe, ch, vector)
	if err != nil {
		return nil, err
	}
	return plainCQ{in}, nil
}
