// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMissingImport: in a program that does not import the package that makes a device, the error
// names the import.
func TestMissingImport(t *testing.T) {
	makers.Lock()
	imported := makers.byPrefix
	makers.byPrefix = nil
	makers.Unlock()
	defer func() {
		makers.Lock()
		defer makers.Unlock()
		makers.byPrefix = imported
	}()
	for name, want := range map[string]string{
		"usiw0":    `; import _ "github.com/goverbs/goverbs/usiw" makes usiw0 and usiw0-plain)`,
		"ib:usiw0": `; import _ "github.com/goverbs/goverbs/compat/ibcompat" makes ib:NAME over each device NAME)`,
	} {
		_, err := DeviceByName(name)
		require.ErrorIs(t, err, ErrNoDevice)
		require.ErrorContains(t, err, want)
	}
	for _, name := range []string{"", "mlx5_9", "other:usiw0"} {
		_, err := DeviceByName(name)
		require.ErrorIs(t, err, ErrNoDevice)
		require.NotContains(t, err.Error(), "import")
	}
}
