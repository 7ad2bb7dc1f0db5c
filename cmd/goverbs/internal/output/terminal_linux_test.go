// SPDX-License-Identifier: BSD-3-Clause

package output

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestTerminal(t *testing.T) {
	_, terminal := clitest.Terminal(t)
	require.True(t, Terminal(terminal))
	require.True(t, Terminal(New(terminal, nil)))
}
