// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"errors"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// domain is a protection domain (verbs.ProviderPD, ProviderSRQAllocator, ProviderAHCreator,
// ProviderDmabufRegistrar).
type domain struct {
	*forward.PD
	ctx   *vcontext
	sinks sinks
}

func (c *vcontext) AllocPD() (verbs.ProviderPD, error) {
	in, err := c.NewPD()
	if err != nil {
		return nil, err
	}
	return &domain{PD: in, ctx: c}, nil
}

func (p *domain) Dealloc() error { return errors.Join(p.sinks.close(), p.PD.Dealloc()) }
