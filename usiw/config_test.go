// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestWithout: the atomics can only be disabled together, and so can the two operations that are
// Immediate Data on the wire; operations that the comment does not name cannot be disabled.
func TestWithout(t *testing.T) {
	atomics := []verbs.Op{verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap}
	immediates := []verbs.Op{verbs.OpImm64, verbs.OpWriteImm}
	for _, group := range [][]verbs.Op{atomics, immediates} {
		all := verbs.MakeOpSet(group...)
		for some := range all + 1 {
			if some&^all != 0 || some == 0 {
				continue
			}
			nic, err := usiw.New(usiw.Config{Without: some | verbs.MakeOpSet(verbs.OpSendInv)})
			if some == all {
				require.NoError(t, err)
				require.NoError(t, nic.Close())
				continue
			}
			require.ErrorIs(t, err, verbs.ErrInvalid)
			require.ErrorContains(t, err, "Config.Without: "+some.String()+" is not all of "+all.String()+" or none")
		}
	}
	for op := range verbs.Ops() {
		nic, err := usiw.New(usiw.Config{Without: verbs.MakeOpSet(op)})
		switch op {
		case verbs.OpSendInv, verbs.OpLocalInv, verbs.OpBindMW:
			require.NoError(t, err)
			require.NoError(t, nic.Close())
		default:
			require.ErrorIs(t, err, verbs.ErrInvalid)
			require.ErrorContains(t, err, op.String())
		}
	}
}
