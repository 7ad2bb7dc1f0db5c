// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

type kernelMW struct {
	ctx *kernelContext
	c   rawMW
}

// AllocMW makes a window.
func (pd *kernelPD) AllocMW(t MWType) (ProviderMW, error) {
	w := &kernelMW{ctx: pd.ctx}
	if err := pd.ctx.counts.mw.add(); err != nil {
		return nil, err
	}
	var rc int
	if w.c, rc = pd.c.allocMW(t); rc != 0 {
		pd.ctx.counts.mw.remove()
		return nil, callError("ibv_alloc_mw", rc)
	}
	return w, nil
}

// RKey returns the key given at allocation.
func (w *kernelMW) RKey() uint32 { return w.c.rkey() }

// Dealloc frees the window.
func (w *kernelMW) Dealloc() error {
	w.ctx.counts.mw.remove()
	return callError("ibv_dealloc_mw", w.c.dealloc())
}
