// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Resize implements verbs.ProviderCQResizer. The ring grows on demand, so only the limit changes.
func (c *cq) Resize(cqe int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.ring.Len(); cqe < n {
		return fmt.Errorf("%w: CQE %d: %d completions are in the queue", verbs.ErrInvalid, cqe, n)
	}
	c.cap = cqe
	return nil
}
