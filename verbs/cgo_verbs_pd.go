// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

type cgoPD struct {
	ctx *cgoContext
	c   *C.struct_ibv_pd
}

// AllocPD makes a protection domain.
func (c *cgoContext) AllocPD() (ProviderPD, error) {
	pd := &cgoPD{ctx: c}
	if err := c.counts.pd.add(); err != nil {
		return nil, err
	}
	if err := callError("ibv_alloc_pd", C.gv_alloc_pd(c.c, &pd.c)); err != nil {
		c.counts.pd.remove()
		return nil, err
	}
	return pd, nil
}

// Dealloc frees it.
func (pd *cgoPD) Dealloc() error {
	pd.ctx.counts.pd.remove()
	return callError("ibv_dealloc_pd", C.gv_result(C.ibv_dealloc_pd(pd.c))) // 0 or an errno
}
