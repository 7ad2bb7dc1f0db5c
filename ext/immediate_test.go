// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

func TestImmediateRequests(t *testing.T) {
	require.Equal(t, verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 7, Flags: verbs.SendSignaled}, ext.ImmDataWR(7))
	require.Equal(t, verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 7, Flags: verbs.SendSignaled | verbs.SendSolicited},
		ext.ImmDataSEWR(7))
	src := verbs.SGE{Addr: 1, Length: 2, LKey: 3}
	to := verbs.Remote{Addr: 4, Length: 2, RKey: 5}
	require.Equal(t, [2]verbs.SendWR{verbs.Write(to, src), ext.ImmDataWR(6)}, ext.WriteImm64WRs(to, 6, src))
}
