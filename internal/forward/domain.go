// SPDX-License-Identifier: BSD-3-Clause

package forward

import "github.com/goverbs/goverbs/verbs"

// PD is a protection domain (verbs.ProviderPD, ProviderSRQAllocator, ProviderAHCreator,
// ProviderDmabufRegistrar).
type PD struct {
	In  *verbs.PD
	ctx *Context
}

// NewPD allocates a PD.
func (c *Context) NewPD() (*PD, error) {
	in, err := c.In.AllocPD()
	if err != nil {
		return nil, err
	}
	return &PD{in, c}, nil
}

// AllocPD returns a PD whose objects only forward.
func (c *Context) AllocPD() (verbs.ProviderPD, error) {
	p, err := c.NewPD()
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PD) below() *verbs.PD { return p.In }
func (p *PD) Dealloc() error   { return p.In.Close() }

// MR is a memory region (verbs.ProviderMR, ProviderMRReregisterer).
type MR struct{ In *verbs.MR }

func (p *PD) RegMR(mem []byte, iova uint64, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.In.RegMRIova(mem, iova, access)
	if err != nil {
		return nil, err
	}
	return &MR{in}, nil
}

func (p *PD) RegDmabufMR(offset, length, iova uint64, fd int, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.In.RegDmabufMR(offset, length, iova, fd, access)
	if err != nil {
		return nil, err
	}
	return &MR{in}, nil
}

func (m *MR) below() *verbs.MR { return m.In }
func (m *MR) LKey() uint32     { return m.In.LKey() }
func (m *MR) RKey() uint32     { return m.In.RKey() }
func (m *MR) Dereg() error     { return m.In.Close() }

func (m *MR) Rereg(flags verbs.ReregFlags, pd verbs.ProviderPD, mem []byte, _ uint64, access verbs.AccessFlags) error {
	to, err := below[verbs.PD](pd)
	if err != nil {
		return err
	}
	return m.In.Rereg(flags, to, mem, access)
}

// mw is a memory window (verbs.ProviderMW).
type mw struct{ in *verbs.MW }

func (p *PD) AllocMW(t verbs.MWType) (verbs.ProviderMW, error) {
	in, err := p.In.AllocMW(t)
	if err != nil {
		return nil, err
	}
	return &mw{in}, nil
}

func (w *mw) below() *verbs.MW { return w.in }
func (w *mw) RKey() uint32     { return w.in.RKey() }
func (w *mw) Dealloc() error   { return w.in.Close() }

// ah is an address handle (verbs.ProviderAH).
type ah struct{ in *verbs.AH }

func (p *PD) CreateAH(attr verbs.AHAttr) (verbs.ProviderAH, error) {
	in, err := p.In.CreateAH(attr)
	if err != nil {
		return nil, err
	}
	return &ah{in}, nil
}

func (a *ah) below() *verbs.AH { return a.in }
func (a *ah) Destroy() error   { return a.in.Close() }

// srq is a shared receive queue (verbs.ProviderSRQ).
type srq struct {
	ctx *Context
	in  *verbs.SRQ
}

func (p *PD) CreateSRQ(owner *verbs.SRQ, attr verbs.SRQAttr) (verbs.ProviderSRQ, verbs.SRQAttr, error) {
	in, err := p.In.CreateSRQ(attr)
	if err != nil {
		return nil, verbs.SRQAttr{}, err
	}
	p.ctx.owners.m.Store(in, owner)
	return &srq{p.ctx, in}, in.Attr(), nil
}

func (s *srq) below() *verbs.SRQ                        { return s.in }
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return s.in.PostRecv(wrs) }
func (s *srq) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return s.in.Modify(attr, mask)
}
func (s *srq) Query() (verbs.SRQAttr, error) { return s.in.Query() }

func (s *srq) Destroy() error {
	s.ctx.owners.m.Delete(s.in)
	return s.in.Close()
}
