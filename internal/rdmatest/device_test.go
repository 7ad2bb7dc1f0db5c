// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelDevice(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "rxe0"), 0o755))
	require.NoError(t, kernelDevice(dir, "", "rxe0"))
	require.NoError(t, kernelDevice(dir, "rxe0,siw0", "rxe0"))

	// An absent device is a reason to skip, unless the run requires it.
	require.ErrorIs(t, kernelDevice(dir, "", "siw0"), errNoDevice)
	require.ErrorIs(t, kernelDevice(dir, "rxe0,siw01", "siw0"), errNoDevice)
	require.ErrorIs(t, kernelDevice(filepath.Join(dir, "absent"), "", "siw0"), errNoDevice)
	err := kernelDevice(dir, "rxe0,siw0", "siw0")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, errNoDevice)
	require.ErrorContains(t, err, "GOVERBS_TEST_REQUIRE=rxe0,siw0")
}
