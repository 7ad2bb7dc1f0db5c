// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

type kernelMW struct {
	ctx *kernelContext
	c   rawMW
	key uint32 // given at allocation; the library's changes with binds
}

// AllocMW makes a window.
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
	var rc int
	if w.c, rc = pd.c.allocMW(t); rc != 0 {
		pd.ctx.counts.mw.remove()
		return callError("ibv_alloc_mw", rc)
	}
	w.key = w.c.rkey()
	return nil
}

// bindable implements ownWindow.
func (w *kernelMW) bindable() (*kernelMW, error) { return w, nil }

// RKey returns the key given at allocation.
func (w *kernelMW) RKey() uint32 { return w.key }

// Dealloc frees the window.
func (w *kernelMW) Dealloc() error {
	w.ctx.counts.mw.remove()
	return callError("ibv_dealloc_mw", w.c.dealloc())
}
