// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var sink uint64

func TestNoAllocs(t *testing.T) {
	var (
		buf      = make([]byte, UntaggedLen)
		tagged   = taggedVectors[0].header
		untagged = untaggedVectors[1].header
	)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		tagged.Put(buf)
		h, _ := ParseTagged(buf)
		sink += h.TO
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		untagged.Put(buf)
		h, _ := ParseUntagged(buf)
		sink += uint64(h.MO)
	}))
}
