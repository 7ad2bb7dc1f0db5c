// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"sync"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// vcontext is an open device (verbs.ProviderContext, ext.Supporter). The events of its completion
// channels are those of the inner CQs. One that a request of our own has caused reaches the program
// too: it finds nothing to poll, arms the CQ again and waits, as after any event that it has polled
// the completion of before. Its poll goes on with what is being composed.
type vcontext struct {
	forward.Context
	composed verbs.OpSet

	keys    sync.RWMutex   // guards regions
	regions map[uint32]*mr // by local key
}

func (c *vcontext) Ops() verbs.OpSet { return c.In.Ops() | c.composed }

// Support implements ext.Supporter.
func (c *vcontext) Support(op verbs.Op) ext.Support {
	if c.composed.Has(op) {
		return ext.Composed
	}
	return ext.SupportOf(c.In, op)
}
