// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// Resize makes room for at least cqe completions (ibv_resize_cq(3)). Completions that are in the queue stay; a size below
// their number is refused by the device.
func (cq *CQ) Resize(cqe int) error {
	const op = "CQ.Resize"
	if !cq.node.Enter() {
		return opError(op, cq.ctx.dev.Name(), ErrClosed)
	}
	defer cq.node.Exit()
	r, ok := Ability[ProviderCQResizer](cq.p)
	switch {
	case !ok:
		return opError(op, cq.ctx.dev.Name(), fmt.Errorf("%w: resizing a CQ", ErrNotSupported))
	case cqe <= 0:
		return opError(op, cq.ctx.dev.Name(), invalid("CQE %d", cqe))
	case cqe > cq.ctx.attr.MaxCQE:
		return opError(op, cq.ctx.dev.Name(), limit("max_cqe", cqe, cq.ctx.attr.MaxCQE))
	}
	return opError(op, cq.ctx.dev.Name(), r.Resize(cqe))
}
