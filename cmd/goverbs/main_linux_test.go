// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// TestNothingOfRDMACoreIsLinked: the program starts even if rdma-core is not installed.
func TestNothingOfRDMACoreIsLinked(t *testing.T) {
	f, err := elf.Open(clitest.Program)
	require.NoError(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	for _, name := range libraries {
		require.False(t, strings.HasPrefix(name, "libibverbs") || strings.HasPrefix(name, "librdmacm"), name)
	}
	symbols, err := f.DynamicSymbols()
	if clitest.WithLibibverbs {
		require.NoError(t, err)
		require.NotEmpty(t, symbols)
	}
	for _, s := range symbols {
		for _, prefix := range []string{"ibv_", "_ibv_", "rdma_"} {
			require.False(t, s.Section == elf.SHN_UNDEF && strings.HasPrefix(s.Name, prefix), s.Name)
		}
	}
}
