// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"os"
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

// TestUserSpace is a short soak of the device that does not need the kernel.
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
