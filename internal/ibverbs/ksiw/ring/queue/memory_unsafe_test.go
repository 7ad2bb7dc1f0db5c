// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// memory returns words as bytes, which begin at an address like that of a mapping.
func memory(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

// TestLayout: sizes and places are those of <rdma/siw-abi.h>.
func TestLayout(t *testing.T) {
	var s Send
	require.EqualValues(t, 120, unsafe.Sizeof(s))
	require.EqualValues(t, 8, unsafe.Offsetof(s.word))
	require.EqualValues(t, 12, unsafe.Offsetof(s.RKey))
	require.EqualValues(t, 16, unsafe.Offsetof(s.RAddr))
	require.EqualValues(t, 24, unsafe.Offsetof(s.SGEs))
	require.EqualValues(t, unsafe.Sizeof(s), SQSize(1))
	require.Equal(t, unsafe.Pointer(&s.SGEs[1]), unsafe.Pointer(s.Inline()))
	require.Equal(t, unsafe.Pointer(&s.SGEs[1]), unsafe.Pointer(s.Operands()))
	require.EqualValues(t, 80, MaxInline)
	var r Receive
	require.EqualValues(t, 112, unsafe.Sizeof(r))
	require.EqualValues(t, 8, unsafe.Offsetof(r.word))
	require.EqualValues(t, 16, unsafe.Offsetof(r.SGEs))
	require.EqualValues(t, unsafe.Sizeof(r), RQSize(1))
	var c completion
	require.EqualValues(t, 32, unsafe.Sizeof(c))
	require.EqualValues(t, 8, unsafe.Offsetof(c.word))
	require.EqualValues(t, 12, unsafe.Offsetof(c.bytes))
	require.EqualValues(t, 16, unsafe.Offsetof(c.imm))
	require.EqualValues(t, 24, unsafe.Offsetof(c.qp))
	require.EqualValues(t, 4*unsafe.Sizeof(c)+unsafe.Sizeof(control{}), CQSize(4))
}

// TestWords: what stands in a word is at the place of the C structure.
func TestWords(t *testing.T) {
	w := requestWord(FlagSignaled|valid, 3, OpSendInv)
	b := (*[4]byte)(unsafe.Pointer(&w))
	require.EqualValues(t, FlagSignaled|valid, *(*uint16)(unsafe.Pointer(&b[0])))
	require.EqualValues(t, 3, b[2])
	require.EqualValues(t, OpSendInv, b[3])

	b[0], b[1] = 0x81, byte(OpReceive)
	*(*uint16)(unsafe.Pointer(&b[2])) = uint16(StatusFlushed)
	flags, op, status := completionParts(w)
	require.EqualValues(t, 0x81, flags)
	require.Equal(t, OpReceive, op)
	require.Equal(t, StatusFlushed, status)
}
