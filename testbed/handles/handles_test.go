// SPDX-License-Identifier: BSD-3-Clause

package handles

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func TestUserSpace(t *testing.T) {
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, nic.Close()) }()
	Run(t, nic.Device(), "127.0.0.1:0")
}
