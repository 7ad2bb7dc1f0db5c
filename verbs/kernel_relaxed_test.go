// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestRelaxedStaysHere: SendRelaxed is never passed to libibverbs, whatever the request looks like
// and whatever keeps account of it.
func TestRelaxedStaysHere(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        newRXERig,
		"siw":        func(t testing.TB) *rig { return newRig(t, "fake1") },
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			r.up(r.qp)
			const other = verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited
			for _, sges := range [][]verbs.SGE{nil, {r.sge(0, 8)}, {r.sge(0, 8), r.sge(8, 8)}} {
				for _, flags := range []verbs.SendFlags{verbs.SendSignaled, other, other | verbs.SendInline} {
					wr := verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, SGL: sges, Flags: flags | verbs.SendRelaxed}
					r.post(r.qp, wr)
					got := fakeverbs.LastPosted()
					require.Len(t, got, 1)
					// Where account is kept of requests, fences are too.
					require.EqualValues(t, flags|verbs.SendFence, got[0].Flags|uint32(verbs.SendFence), "%d elements",
						len(sges))
				}
			}
		})
	}
}
