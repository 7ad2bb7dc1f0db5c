// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestCapabilities(t *testing.T) {
	for _, c := range []struct {
		name    string
		without verbs.OpSet
	}{
		{"complete", 0},
		{"without atomics", ext.Atomics},
		{"without RFC 7306", ext.Operations},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := newContext(t, usiw.Config{Without: c.without})
			caps := ext.Capabilities(ctx)
			i := 0
			for op := range verbs.Ops() {
				want := ext.Native
				// which iWARP does not have
				if c.without.Has(op) || op == verbs.OpSendImm || op == verbs.OpAtomicWrite {
					want = ext.None
				}
				require.Equal(t, ext.Capability{Op: op, Support: want}, caps[i])
				require.Equal(t, want, ext.SupportOf(ctx, op))
				i++
			}
			require.Len(t, caps, i)
		})
	}
}

func TestCapabilityText(t *testing.T) {
	require.Equal(t, "masked-fetch-add: native",
		ext.Capability{Op: verbs.OpMaskedFetchAdd, Support: ext.Native}.String())
	require.Equal(t, "imm64: none", ext.Capability{Op: verbs.OpImm64}.String())
	require.Equal(t, "cmp-swap: composed", ext.Capability{Op: verbs.OpCmpSwap, Support: ext.Composed}.String())
	require.Equal(t, "emulated", ext.Emulated.String())
	require.Equal(t, "Support(9)", ext.Support(9).String())
	require.Equal(t, "fetch-add,cmp-swap,masked-fetch-add,masked-cmp-swap", ext.Atomics.String())
	require.Equal(t, "write-imm,fetch-add,cmp-swap,masked-fetch-add,masked-cmp-swap,imm64", ext.Operations.String())
}
