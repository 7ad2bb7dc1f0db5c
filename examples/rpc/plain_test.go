// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// This example needs only messages, so it also runs on an RNIC without RFC 7306.
func TestPlain(t *testing.T) {
	require.NoError(t, run(t.Context(), "usiw0-plain", "127.0.0.1:0"))
}
