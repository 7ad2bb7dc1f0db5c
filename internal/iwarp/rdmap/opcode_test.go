// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpcodeString(t *testing.T) {
	for i, want := range []string{
		"RDMA Write", "RDMA Read Request", "RDMA Read Response",
		"Send", "Send with Invalidate", "Send with Solicited Event", "Send with Solicited Event and Invalidate",
		"Terminate", "Immediate Data", "Immediate Data with Solicited Event", "Atomic Request", "Atomic Response",
		"Opcode(12)", "Opcode(13)", "Opcode(14)", "Opcode(15)",
	} {
		require.Equal(t, want, Opcode(i).String())
	}
	require.Equal(t, "Opcode(255)", Opcode(255).String())
}
