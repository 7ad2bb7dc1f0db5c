// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransitions checks every pair of states against the diagram of ibv_modify_qp(3).
func TestTransitions(t *testing.T) {
	allowed := map[QPState]string{ // the states that may follow
		QPStateReset: "RESET INIT ERR",
		QPStateInit:  "RESET INIT RTR ERR",
		QPStateRTR:   "RESET RTS ERR",
		QPStateRTS:   "RESET RTS SQD ERR",
		QPStateSQD:   "RESET RTS SQD ERR",
		QPStateSQE:   "RESET RTS ERR",
		QPStateErr:   "RESET ERR",
	}
	for from := QPStateReset; from <= QPStateErr; from++ {
		for to := QPStateReset; to <= QPStateErr; to++ {
			err := CheckTransition(from, to)
			if containsWord(allowed[from], to.String()) {
				require.NoError(t, err, "%v to %v", from, to)
				continue
			}
			require.ErrorIs(t, err, ErrState, "%v to %v", from, to)
			require.ErrorContains(t, err, "QP is in state "+from.String())
			require.ErrorContains(t, err, "it cannot go to "+to.String())
		}
	}
	require.ErrorIs(t, CheckTransition(7, QPStateReset), ErrInvalid)
	require.ErrorIs(t, CheckTransition(QPStateReset, 7), ErrInvalid)
}

func containsWord(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
