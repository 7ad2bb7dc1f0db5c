// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

type kernelAH struct {
	ctx *kernelContext
	c   rawAH
}

// CreateAH makes an address handle.
func (pd *kernelPD) CreateAH(attr AHAttr) (ProviderAH, error) {
	ah := &kernelAH{ctx: pd.ctx}
	if err := pd.ctx.counts.ah.add(); err != nil {
		return nil, err
	}
	var rc int
	if ah.c, rc = pd.c.createAH(attr); rc != 0 {
		pd.ctx.counts.ah.remove()
		return nil, callError("ibv_create_ah", rc)
	}
	return ah, nil
}

// Destroy destroys the handle.
func (ah *kernelAH) Destroy() error {
	ah.ctx.counts.ah.remove()
	return callError("ibv_destroy_ah", ah.c.destroy())
}
