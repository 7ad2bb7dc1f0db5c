// SPDX-License-Identifier: BSD-3-Clause

package refusal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	for _, reason := range []string{BacklogFull, NotIB} {
		for _, data := range [][]byte{Data(reason), append(Data(reason), make([]byte, 100)...)} {
			got, rest := Split(data)
			require.Equal(t, reason, got)
			require.Nil(t, rest)
		}
		require.LessOrEqual(t, len(Data(reason)), 48, "every fabric has room for it")
	}
	for _, data := range []string{"", "backlog full", "goverbs: ", "goverbs: backlog full!", "goverbs: \x1b[2J",
		"\x00goverbs: backlog full"} {
		reason, rest := Split([]byte(data))
		require.Empty(t, reason)
		require.Equal(t, data, string(rest))
	}
}
