// SPDX-License-Identifier: BSD-3-Clause

package kerneltest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComplaints(t *testing.T) {
	before := []string{"[1.0] WARNING: an old one"}
	after := append(before, "[2.0] rdma_rxe: loaded", "[3.0] WARNING: CPU: 0 PID: 7 at x.c:1", "[3.1] Call Trace:",
		"[4.0] clocksource: Long readout interval, skipping watchdog check: warning",
		"[5.0] rxe0: qp#17 moved to error state")
	require.Equal(t, after[2:4], complaints(before, after))
}

// TestKnownWarnings: a known warning of a driver is left out as a whole, another one is not.
func TestKnownWarnings(t *testing.T) {
	warning := func(what string) []string {
		return []string{"[1.0] ------------[ cut here ]------------", "[1.0] " + what,
			"[1.0] WARNING: CPU: 1 PID: 288 at kernel/softirq.c:798", "[1.0] Call Trace:",
			"[1.0] ---[ end trace 0000000000000000 ]---"}
	}
	known := warning("tasklet SCHED state not set: callback rxe_do_task+0x0/0x1 [rdma_rxe]")
	other := warning("tasklet SCHED state not set: callback other+0x0/0x1")
	require.Empty(t, complaints(nil, known))
	require.Equal(t, other[2:4], complaints(nil, slices.Concat(known, other, known)))
	require.Equal(t, known[2:4], complaints(nil, known[1:]), "without its first line")
	require.Equal(t, known[2:4], complaints(nil, known[:4]), "without its last line")
}
