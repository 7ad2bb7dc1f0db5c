// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPcapDiskFull(t *testing.T) {
	r := goverbs(t, "demo", "--pcap", "/dev/full")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "goverbs demo: --pcap /dev/full: capture: write: write /dev/full: no space left on device\n", r.stderr)
}
