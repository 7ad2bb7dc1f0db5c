// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package errname

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	require.Equal(t, "EINVAL", Of(syscall.EINVAL))
	require.Equal(t, "EOPNOTSUPP", Of(syscall.EOPNOTSUPP))
	require.Empty(t, Of(4095))
}
