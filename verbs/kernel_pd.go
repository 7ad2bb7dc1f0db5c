// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

type kernelPD struct {
	ctx *kernelContext
	c   ibverbs.PD
}

// AllocPD allocates a protection domain.
func (c *kernelContext) AllocPD() (ProviderPD, error) {
	pd := new(kernelPD)
	if err := pd.create(c); err != nil {
		return nil, err
	}
	return pd, nil
}

func (pd *kernelPD) create(c *kernelContext) error {
	pd.ctx = c
	if err := c.counts.pd.add(); err != nil {
		return err
	}
	var err error
	if pd.c, err = c.c.AllocPD(); err != nil {
		c.counts.pd.remove()
	}
	return callError("ibv_alloc_pd", err)
}

func (pd *kernelPD) base() *kernelPD { return pd }

// Dealloc frees the protection domain.
func (pd *kernelPD) Dealloc() error {
	pd.ctx.counts.pd.remove()
	return callError("ibv_dealloc_pd", pd.c.Dealloc())
}

type kernelAH struct {
	ctx *kernelContext
	c   ibverbs.AH
}

// CreateAH creates an address handle.
func (pd *kernelPD) CreateAH(attr AHAttr) (ProviderAH, error) {
	ah := &kernelAH{ctx: pd.ctx}
	if err := pd.ctx.counts.ah.add(); err != nil {
		return nil, err
	}
	var err error
	if ah.c, err = pd.c.CreateAH(flatAH(&attr)); err != nil {
		pd.ctx.counts.ah.remove()
		return nil, callError("ibv_create_ah", err)
	}
	return ah, nil
}

// Destroy destroys the handle.
func (ah *kernelAH) Destroy() error {
	ah.ctx.counts.ah.remove()
	return callError("ibv_destroy_ah", ah.c.Destroy())
}

type kernelMW struct {
	ctx *kernelContext
	c   ibverbs.MW
	key uint32 // assigned at allocation; the library's changes with binds
}

// AllocMW allocates a window.
func (pd *kernelPD) AllocMW(t MWType) (ProviderMW, error) {
	w := new(kernelMW)
	if err := w.alloc(pd, t); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *kernelMW) alloc(pd *kernelPD, t MWType) error {
	w.ctx = pd.ctx
	if err := pd.ctx.counts.mw.add(); err != nil {
		return err
	}
	var err error
	if w.c, err = pd.c.AllocMW(int(t)); err != nil {
		pd.ctx.counts.mw.remove()
		return callError("ibv_alloc_mw", err)
	}
	w.key = w.c.RKey()
	return nil
}

// bindable implements ownWindow.
func (w *kernelMW) bindable() (*kernelMW, error) { return w, nil }

// RKey returns the key assigned at allocation.
func (w *kernelMW) RKey() uint32 { return w.key }

// Dealloc frees the window.
func (w *kernelMW) Dealloc() error {
	w.ctx.counts.mw.remove()
	return callError("ibv_dealloc_mw", w.c.Dealloc())
}
