// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

type kernelMW struct {
	ctx *kernelContext
	c   ibverbs.MW
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

// RKey returns the key given at allocation.
func (w *kernelMW) RKey() uint32 { return w.key }

// Dealloc frees the window.
func (w *kernelMW) Dealloc() error {
	w.ctx.counts.mw.remove()
	return callError("ibv_dealloc_mw", w.c.Dealloc())
}
