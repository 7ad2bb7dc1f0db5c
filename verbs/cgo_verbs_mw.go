// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import "fmt"

type cgoMW struct {
	ctx *cgoContext
	c   *C.struct_ibv_mw
}

// AllocMW makes a window.
func (pd *cgoPD) AllocMW(t MWType) (ProviderMW, error) {
	if pd.ctx.model.noMW {
		return nil, fmt.Errorf("%w: the driver of %s has no memory windows", ErrNotSupported, pd.ctx.dev.info.Name)
	}
	w := &cgoMW{ctx: pd.ctx}
	if err := pd.ctx.counts.mw.add(); err != nil {
		return nil, err
	}
	if err := callError("ibv_alloc_mw", C.gv_alloc_mw(pd.c, C.int(t), &w.c)); err != nil {
		pd.ctx.counts.mw.remove()
		return nil, err
	}
	return w, nil
}

// RKey returns the key given at allocation.
func (w *cgoMW) RKey() uint32 { return uint32(w.c.rkey) }

// Dealloc frees the window.
func (w *cgoMW) Dealloc() error {
	w.ctx.counts.mw.remove()
	return callError("ibv_dealloc_mw", C.gv_result(C.ibv_dealloc_mw(w.c))) // 0 or an errno
}
