// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// PD is a protection domain. QPs can access only memory of their own domain. All methods may be
// called concurrently.
type PD struct {
	node lifetime.Node
	ctx  *Context
	p    ProviderPD
}

// AllocPD allocates a protection domain (ibv_alloc_pd(3)).
func (c *Context) AllocPD() (*PD, error) {
	if err := c.enter("AllocPD"); err != nil {
		return nil, err
	}
	defer c.node.Exit()
	p, err := c.p.AllocPD()
	if err != nil {
		return nil, opError("AllocPD", c.dev.Name(), err)
	}
	pd := &PD{ctx: c, p: p}
	if err := pd.node.Init("PD", pd.Close, &c.node); err != nil {
		return nil, opError("AllocPD", c.dev.Name(), errors.Join(err, p.Dealloc()))
	}
	return pd, nil
}

// Context returns the context that the domain belongs to.
func (pd *PD) Context() *Context { return pd.ctx }

// Provider returns the provider's PD object.
func (pd *PD) Provider() ProviderPD { return pd.p }

func (pd *PD) enter(op string) error {
	if pd.node.Enter() {
		return nil
	}
	return opError(op, pd.ctx.dev.Name(), ErrClosed)
}

// Close frees the domain (ibv_dealloc_pd(3)). It is idempotent and may be called on nil. The error
// Is [ErrBusy] if it has live regions, windows, QPs, SRQs or address handles.
func (pd *PD) Close() error {
	if pd == nil {
		return nil
	}
	first, err := pd.node.BeginClose()
	if !first || err != nil {
		return opError("PD.Close", pd.ctx.dev.Name(), err)
	}
	pd.node.Drain(0)
	err = pd.p.Dealloc()
	pd.node.End()
	return opError("PD.Close", pd.ctx.dev.Name(), err)
}
