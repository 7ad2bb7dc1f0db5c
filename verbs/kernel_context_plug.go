// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "os"

// libsiw takes the offset 0x90000 in what a context maps for no offset (SIW_INVAL_UOBJ_KEY). A CQ, QP or SRQ whose queue would
// begin there cannot be made, and then no other of its size can, for the kernel gives out the lowest offset that is free. So
// each context of siw has a CQ that lies across the place.
const (
	siwHole    = 0x90000
	siwCQEntry = 32 // sizeof(struct siw_cqe)
	siwCQCtrl  = 8  // sizeof(struct siw_cq_ctrl)
)

// siwCQLen is how much a CQ of so many entries, a power of two, maps.
func siwCQLen(cqe, page int) int {
	return (cqe*siwCQEntry + siwCQCtrl + page - 1) / page * page
}

// plugPlan returns the sizes of CQs that, made one after the other in a new context, fill it up to the hole, and of the one
// behind them that lies across it.
func plugPlan(page int) (before []int, across int) {
	for at := 0; ; {
		cqe := 1
		if at+siwCQLen(cqe, page) >= siwHole {
			for at+siwCQLen(cqe, page) <= siwHole {
				cqe *= 2
			}
			return before, cqe
		}
		for at+siwCQLen(2*cqe, page) < siwHole {
			cqe *= 2
		}
		before = append(before, cqe)
		at += siwCQLen(cqe, page)
	}
}

// plugHole makes the CQ. Where it fails things are as they were.
func (c *kernelContext) plugHole() {
	create := func(cqe int) rawCQ {
		cq, _, _ := c.c.createCQ(cqe, 0, 0) // 0 if it fails
		return cq
	}
	before, across := plugPlan(os.Getpagesize())
	for _, cqe := range before {
		if cq := create(cqe); cq != 0 {
			defer cq.destroy()
		}
	}
	c.plug = create(across)
}

func (c *kernelContext) unplug() {
	if c.plug != 0 {
		c.plug.destroy()
		c.plug = 0
	}
}
