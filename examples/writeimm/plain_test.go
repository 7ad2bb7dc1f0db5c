// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// An RNIC without RFC 7306 has no immediate data.
func TestPlain(t *testing.T) {
	require.ErrorIs(t, run(t.Context(), "usiw0-plain", "127.0.0.1:0"), verbs.ErrNotSupported)
}
