// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/handles"
)

// TestOneHostHandles uses handles in the wrong order.
func TestOneHostHandles(t *testing.T) {
	each(t, "siw0", []string{"usiw", "siw0", "rxe0"}, func(t *testing.T, s *site) { handles.Run(t, s.dev, s.listen) })
}
