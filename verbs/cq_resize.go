// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// Resize changes the size of the queue to at least cqe completions (ibv_resize_cq(3)). Completions
// in the queue stay there; the device refuses a size below their number. On devices that cannot
// resize a CQ the error Is [ErrNotSupported], and above max_cqe [ErrLimit].
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
	err := r.Resize(cqe)
	cq.room.Store(int64(cq.p.CQE()))
	return opError(op, cq.ctx.dev.Name(), err)
}
