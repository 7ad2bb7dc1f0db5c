// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
)

// This example needs only messages, so it also runs on an RNIC without RFC 7306.
func TestPlain(t *testing.T) {
	require.NoError(t, run(t.Context(), usiw.PlainName, "127.0.0.1:0"))
}
