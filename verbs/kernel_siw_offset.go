// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"os"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// The fault siwOffsetRefused: a CQ, QP or SRQ whose queue would begin at this offset in what a
// context maps cannot be made, and then no other of its size can, for the kernel gives out the
// lowest offset that is free. So each context of siw has a CQ that lies across the place.
const (
	siwRefused = 0x90000 // SIW_INVAL_UOBJ_KEY
	siwCQEntry = 32      // sizeof(struct siw_cqe)
	siwCQCtrl  = 8       // sizeof(struct siw_cq_ctrl)
)

// siwCQLen returns how many bytes a CQ maps. cqe, the number of its entries, is a power of two.
func siwCQLen(cqe, page int) int {
	return (cqe*siwCQEntry + siwCQCtrl + page - 1) / page * page
}

// offsetPlan returns the sizes of CQs that, made one after the other in a new context, fill it up
// to the offset, and of the one behind them that lies across it.
func offsetPlan(page int) (before []int, across int) {
	for at := 0; ; {
		cqe := 1
		if at+siwCQLen(cqe, page) >= siwRefused {
			for at+siwCQLen(cqe, page) <= siwRefused {
				cqe *= 2
			}
			return before, cqe
		}
		for at+siwCQLen(2*cqe, page) < siwRefused {
			cqe *= 2
		}
		before = append(before, cqe)
		at += siwCQLen(cqe, page)
	}
}

// reserveOffset makes the CQ, in a context that has no other objects. If it fails, it returns nil,
// and the fault is not corrected.
func reserveOffset(c ibverbs.Context) ibverbs.CQ {
	create := func(cqe int) ibverbs.CQ {
		cq, _, _ := c.CreateCQ(ibverbs.CQConfig{CQE: cqe}) // nil if it fails
		return cq
	}
	before, across := offsetPlan(os.Getpagesize())
	for _, cqe := range before {
		if cq := create(cqe); cq != nil {
			defer func() { _ = cq.Destroy() }()
		}
	}
	return create(across)
}
