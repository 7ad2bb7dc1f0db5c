// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
)

// TestSplitOperations runs every operation while no Read of the streams, from the first byte of
// set-up on, returns more than a few bytes.
func TestSplitOperations(t *testing.T) {
	for _, c := range []struct {
		split int
		cfg   usiw.Config
		sizes []int
	}{
		{1, usiw.Config{}, []int{0, 1, 7, 8, 100, 1000, part}},
		{1, usiw.Config{MTU: 256}, []int{0, 1, 209, 210, 211, 1000}},
		{1, usiw.Config{Markers: usiw.On}, []int{0, 1, 500, 511, 512, 513, 2000}},
		{1, usiw.Config{Rev: 1, RTR: usiw.Off, CRC: usiw.On}, []int{100}},
		{1, usiw.Config{CRC: usiw.Off}, []int{1, 100}},
		{2, usiw.Config{}, []int{0, 1, 2, 3, 100}},
		{3, usiw.Config{}, []int{0, 1, 2, 3, 100}},
		{19, usiw.Config{}, []int{0, 1, 1000}},
		{1001, usiw.Config{}, []int{0, 5000, part}},
	} {
		name := fmt.Sprintf("%d bytes, MTU %d, markers %v, CRC %v, revision %d", c.split, c.cfg.MTU, c.cfg.Markers,
			c.cfg.CRC, c.cfg.Rev)
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				wire := usiwtest.NewWire()
				wire.OnDial = func(l *usiwtest.Link) {
					l.ToListener.Split(c.split)
					l.ToDialer.Split(c.split)
				}
				s := newStage(t, usiwtest.PairConfig{Wire: wire, A: c.cfg, B: c.cfg})
				for i := range operations {
					o := &operations[i]
					if !o.data {
						s.run(o, 8)
						continue
					}
					for _, n := range c.sizes {
						s.run(o, n)
					}
				}
			})
		})
	}
}
