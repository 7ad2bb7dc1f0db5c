// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

type kernelPD struct {
	ctx *kernelContext
	c   ibverbs.PD
}

// AllocPD makes a protection domain.
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

// Dealloc frees it.
func (pd *kernelPD) Dealloc() error {
	pd.ctx.counts.pd.remove()
	return callError("ibv_dealloc_pd", pd.c.Dealloc())
}
