// SPDX-License-Identifier: BSD-3-Clause

package forward

import "github.com/goverbs/goverbs/verbs"

// domain is a protection domain (verbs.ProviderPD).
type domain struct {
	ctx *vcontext
	in  *verbs.PD
}

func (c *vcontext) AllocPD() (verbs.ProviderPD, error) {
	in, err := c.in.AllocPD()
	if err != nil {
		return nil, err
	}
	return &domain{c, in}, nil
}

func (p *domain) Dealloc() error { return p.in.Close() }

// mr is a memory region (verbs.ProviderMR, ProviderMRReregisterer).
type mr struct{ in *verbs.MR }

func (p *domain) RegMR(mem []byte, iova uint64, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.in.RegMRIova(mem, iova, access)
	if err != nil {
		return nil, err
	}
	return &mr{in}, nil
}

func (p *domain) RegDmabufMR(offset, length, iova uint64, fd int, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.in.RegDmabufMR(offset, length, iova, fd, access)
	if err != nil {
		return nil, err
	}
	return &mr{in}, nil
}

func (m *mr) LKey() uint32 { return m.in.LKey() }
func (m *mr) RKey() uint32 { return m.in.RKey() }
func (m *mr) Dereg() error { return m.in.Close() }

func (m *mr) Rereg(flags verbs.ReregFlags, pd verbs.ProviderPD, mem []byte, _ uint64, access verbs.AccessFlags) error {
	to, err := verbs.Own[*domain](pd)
	if err != nil {
		return err
	}
	return m.in.Rereg(flags, to.in, mem, access)
}

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
