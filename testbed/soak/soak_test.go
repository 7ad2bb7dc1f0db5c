// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	rdmatest.Main(m)
}

// TestUserSpace is a short soak of the device that needs no kernel.
func TestUserSpace(t *testing.T) {
	before := measure()
	usage, err := run(4*time.Second, 1, []string{"usiw"})
	require.NoError(t, err)
	require.NoError(t, usage.judge())
	require.NoError(t, settled(before).judgeEnd(before))
}

func TestUnknownDevice(t *testing.T) {
	_, err := run(time.Second, 1, []string{"nonesuch0"})
	require.ErrorContains(t, err, "nonesuch0")
	require.ErrorContains(t, child(1, []string{"usiw"}, nil, nil), "usiw")
}

func TestUsageJudges(t *testing.T) {
	var flat, growing, short usage
	for i := range 100 {
		flat.add(amount{resident: 50<<20 + (i%7)<<20, files: 20 + i%9, goroutines: 30 + i%5})
		growing.add(amount{resident: (50 + 2*i) << 20, files: 20, goroutines: 30})
	}
	short.add(amount{})
	require.NoError(t, flat.judge())
	require.ErrorContains(t, growing.judge(), "grows")
	require.Error(t, short.judge())
	require.Error(t, amount{goroutines: 2}.judgeEnd(amount{goroutines: 1}))
	require.Error(t, amount{resident: 70 << 20}.judgeEnd(amount{}))
	require.NoError(t, amount{resident: 30 << 20}.judgeEnd(amount{}))
	require.Error(t, amount{files: 20}.judgeEnd(amount{files: 3}))
}

func TestComplaints(t *testing.T) {
	before := []string{"[1.0] WARNING: an old one"}
	after := append(before, "[2.0] rdma_rxe: loaded", "[3.0] WARNING: CPU: 0 PID: 7 at x.c:1", "[3.1] Call Trace:",
		"[4.0] clocksource: Long readout interval, skipping watchdog check: warning", "[5.0] rxe0: qp#17 moved to error state")
	require.Equal(t, after[2:4], complaints(before, after))
}

// TestKnownWarnings: a known warning of a driver is left out as a whole, another one is not.
func TestKnownWarnings(t *testing.T) {
	warning := func(what string) []string {
		return []string{"[1.0] ------------[ cut here ]------------", "[1.0] " + what, "[1.0] WARNING: CPU: 1 PID: 288 at kernel/softirq.c:798",
			"[1.0] Call Trace:", "[1.0] ---[ end trace 0000000000000000 ]---"}
	}
	known := warning("tasklet SCHED state not set: callback rxe_do_task+0x0/0x1 [rdma_rxe]")
	other := warning("tasklet SCHED state not set: callback other+0x0/0x1")
	require.Empty(t, complaints(nil, known))
	require.Equal(t, other[2:4], complaints(nil, slices.Concat(known, other, known)))
	require.Equal(t, known[2:4], complaints(nil, known[1:]), "without its first line")
	require.Equal(t, known[2:4], complaints(nil, known[:4]), "without its last line")
}
