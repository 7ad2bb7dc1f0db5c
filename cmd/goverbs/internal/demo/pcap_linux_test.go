// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestPcapDiskFull(t *testing.T) {
	r := clitest.Run(t, "demo", "--pcap", "/dev/full")
	require.Equal(t, clitest.Failed, r.Code)
	require.Equal(t, "goverbs demo: --pcap /dev/full: capture: write: write /dev/full: no space left on device\n",
		r.Stderr)
}
