// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages are all that this example needs, so it runs on an RNIC without RFC 7306 too.
func TestPlain(t *testing.T) {
	require.NoError(t, run(t.Context(), "usiw0-plain", "127.0.0.1:0"))
}
