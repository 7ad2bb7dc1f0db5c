// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

type kernelAH struct {
	ctx *kernelContext
	c   ibverbs.AH
}

// CreateAH makes an address handle.
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
