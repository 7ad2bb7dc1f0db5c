// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"fmt"
	"sync/atomic"
)

// objectCount counts the context's objects of one kind, so that the one too many is refused by a
// name and a number: the kernel says ENOMEM, or EINVAL. Objects of other contexts and processes
// count in the kernel only.
type objectCount struct {
	name string
	most int
	n    atomic.Int64
}

func (o *objectCount) add() error {
	if o.most <= 0 {
		return fmt.Errorf("%w: the device's %s is 0", ErrNotSupported, o.name)
	}
	if n := int(o.n.Add(1)); n > o.most {
		o.n.Add(-1)
		return limit(o.name, n, o.most)
	}
	return nil
}

func (o *objectCount) remove() { o.n.Add(-1) }

func (c *kernelContext) limitObjects() {
	a, n := c.attr, &c.counts
	n.pd.name, n.pd.most = "max_pd", a.MaxPD
	n.mr.name, n.mr.most = "max_mr", a.MaxMR
	n.mw.name, n.mw.most = "max_mw", a.MaxMW
	n.cq.name, n.cq.most = "max_cq", a.MaxCQ
	n.qp.name, n.qp.most = "max_qp", a.MaxQP
	n.srq.name, n.srq.most = "max_srq", a.MaxSRQ
	n.ah.name, n.ah.most = "max_ah", a.MaxAH
}
