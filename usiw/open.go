// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// OpenRange implements verbs.ProviderOpener. It creates a type 2 window that exists only while it
// is bound: it counts against max_mw, belongs to the QP, and grants no access once its region is
// closed.
func (v *vcontext) OpenRange(pq verbs.ProviderQP, s verbs.SGE) (rkey uint32, err error) {
	q, err := verbs.Own[*qp](pq)
	d := v.dev
	switch {
	case err != nil:
		return 0, err
	case !d.ops.Has(verbs.OpBindMW):
		return 0, fmt.Errorf("%w: windows", verbs.ErrNotSupported)
	case s.Length == 0:
		return 0, fmt.Errorf("%w: a range of 0 bytes", verbs.ErrInvalid)
	}
	parent, mem, why := q.local(s.LKey, s.Addr, int(s.Length), verbs.AccessLocalWrite)
	if why != accepted {
		return 0, elementError(why, 0, s, verbs.AccessLocalWrite)
	}
	defer parent.exit()
	if err := d.mws.take(); err != nil {
		return 0, err
	}
	r := &region{pd: q.pd, mem: mem, base: s.Addr, access: verbs.AccessRemoteWrite, parent: parent, qp: q,
		fragile: parent.fragile}
	if rkey, err = d.stags.reserve(r); err != nil {
		d.mws.give()
	}
	return rkey, err
}

// ShutRange implements verbs.ProviderOpener. The peer may have invalidated the key already.
func (v *vcontext) ShutRange(rkey uint32) {
	if r := v.dev.stags.release(rkey >> 8); r != nil {
		r.shut()
	}
	v.dev.mws.give()
}
