// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

// domain is a protection domain (verbs.ProviderPD, ProviderSRQAllocator, ProviderAHCreator, ProviderDmabufRegistrar).
type domain struct {
	ctx   *vcontext
	in    *verbs.PD
	sinks sinks
}

func (c *vcontext) AllocPD() (verbs.ProviderPD, error) {
	in, err := c.in.AllocPD()
	if err != nil {
		return nil, err
	}
	return &domain{ctx: c, in: in}, nil
}

func (p *domain) Dealloc() error { return errors.Join(p.sinks.close(), p.in.Close()) }

// mw is a memory window (verbs.ProviderMW).
type mw struct{ in *verbs.MW }

func (p *domain) AllocMW(t verbs.MWType) (verbs.ProviderMW, error) {
	in, err := p.in.AllocMW(t)
	if err != nil {
		return nil, err
	}
	return &mw{in}, nil
}

func (w *mw) RKey() uint32   { return w.in.RKey() }
func (w *mw) Dealloc() error { return w.in.Close() }

// ah is an address handle (verbs.ProviderAH).
type ah struct{ in *verbs.AH }

func (p *domain) CreateAH(attr verbs.AHAttr) (verbs.ProviderAH, error) {
	in, err := p.in.CreateAH(attr)
	if err != nil {
		return nil, err
	}
	return &ah{in}, nil
}

func (a *ah) Destroy() error { return a.in.Close() }

// srq is a shared receive queue (verbs.ProviderSRQ).
type srq struct {
	ctx *vcontext
	in  *verbs.SRQ
}

func (p *domain) CreateSRQ(owner *verbs.SRQ, attr verbs.SRQAttr) (verbs.ProviderSRQ, verbs.SRQAttr, error) {
	in, err := p.in.CreateSRQ(attr)
	if err != nil {
		return nil, verbs.SRQAttr{}, err
	}
	p.ctx.owners.Store(in, owner)
	return &srq{p.ctx, in}, in.Attr(), nil
}

func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return s.in.PostRecv(wrs) }
func (s *srq) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return s.in.Modify(attr, mask)
}
func (s *srq) Query() (verbs.SRQAttr, error) { return s.in.Query() }

func (s *srq) Destroy() error {
	s.ctx.owners.Delete(s.in)
	return s.in.Close()
}
