// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"sync"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// vcontext is an open device (verbs.ProviderContext, ext.Supporter). Its completion channels
// deliver the events of the inner CQs. An event caused by an inner request also reaches the
// program, which finds nothing to poll, arms the CQ again and waits, as after any event whose
// completion was polled earlier. That poll continues the composing.
type vcontext struct {
	forward.Context
	composed verbs.OpSet

	keys    sync.RWMutex   // guards regions
	regions map[uint32]*mr // by lkey
}

func (c *vcontext) Ops() verbs.OpSet { return c.In.Ops() | c.composed }

// Support implements ext.Supporter.
func (c *vcontext) Support(op verbs.Op) ext.Support {
	if c.composed.Has(op) {
		return ext.Composed
	}
	return ext.SupportOf(c.In, op)
}
