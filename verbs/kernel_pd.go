// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

type kernelPD struct {
	ctx *kernelContext
	c   rawPD
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
	var rc int
	if pd.c, rc = c.c.allocPD(); rc != 0 {
		c.counts.pd.remove()
		return callError("ibv_alloc_pd", rc)
	}
	return nil
}

func (pd *kernelPD) base() *kernelPD { return pd }

// Dealloc frees it.
func (pd *kernelPD) Dealloc() error {
	pd.ctx.counts.pd.remove()
	return callError("ibv_dealloc_pd", pd.c.dealloc())
}
