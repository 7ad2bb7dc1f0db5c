// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"os"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// The fault siwOffsetRefused: a CQ, QP or SRQ whose queue would start at this mmap offset of a
// context cannot be created. Nor can any other of its size from then on, because the kernel always
// assigns the lowest free offset. Each siw context therefore has a CQ that spans this offset.
const (
	siwRefused = 0x90000 // SIW_INVAL_UOBJ_KEY
	siwCQEntry = 32      // sizeof(struct siw_cqe)
	siwCQCtrl  = 8       // sizeof(struct siw_cq_ctrl)
)

// siwCQLen returns how many bytes a CQ maps. cqe, its number of entries, is a power of two.
func siwCQLen(cqe, page int) int {
	return (cqe*siwCQEntry + siwCQCtrl + page - 1) / page * page
}

// offsetPlan returns the sizes of CQs that, created one after the other in a new context, occupy
// the space below the offset, and the size of the next one, which spans it.
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

// reserveOffset creates the CQ that spans the offset, in a context without other objects. It
// returns nil if that fails; the fault is then not corrected.
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
