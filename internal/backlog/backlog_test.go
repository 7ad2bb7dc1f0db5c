// SPDX-License-Identifier: BSD-3-Clause

package backlog

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	limit := Limit()
	if text, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil && len(text) < 6 {
		require.Equal(t, strings.TrimSpace(string(text)), strconv.Itoa(limit))
	}
	require.Equal(t, limit, Of(0))
	require.Equal(t, 1, Of(1))
	require.Equal(t, limit, Of(limit))
	require.Equal(t, limit, Of(1<<40))
}
