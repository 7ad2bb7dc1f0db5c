// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// put encodes a header into n bytes.
func put(n int, h interface{ Put([]byte) }) []byte {
	b := make([]byte, n)
	h.Put(b)
	return b
}

var (
	vectorReadRequest = ReadRequest{SinkSTag: 0x51, SinkTO: 0x52000, Size: 32, SrcSTag: 0x53, SrcTO: 0x54000}
	vectorFetchAdd    = AtomicRequest{
		Op: AtomicFetchAdd, ID: 0x11, STag: 0x00abcd00, TO: 0x7f0000001000,
		AddSwap: 5, CompareMask: ^uint64(0),
	}
	vectorCmpSwap = AtomicRequest{
		Op: AtomicCmpSwap, ID: 0x12, STag: 0x00abcd00, TO: 0x7f0000001008,
		AddSwap: 9, AddSwapMask: ^uint64(0), Compare: 5, CompareMask: ^uint64(0),
	}
	vectorAtomicResponse = AtomicResponse{ID: 0x11, Value: 41}
	vectorTerminate      = Terminate{Layer: LayerRDMAP, Type: ErrTypeOperation, Code: OperOpcode}
)

// The ULPDUs of whole messages: DDP header, RDMAP header, payload.
func TestMessages(t *testing.T) {
	untagged := func(op Opcode, qn, msn uint32, rest []byte) []byte {
		h := put(ddp.UntaggedLen, ddp.Untagged{Last: true, ULP: Control(op), QN: qn, MSN: msn})
		return append(h, rest...)
	}
	tagged := func(op Opcode, stag uint32, to uint64, rest []byte) []byte {
		h := put(ddp.TaggedLen, ddp.Tagged{Last: true, ULP: Control(op), STag: stag, TO: to})
		return append(h, rest...)
	}
	quoting := Terminate{
		Layer: LayerRDMAP, Type: ErrTypeOperation, Code: OperStream, SegLenValid: true, SegLen: 70,
		DDPHeader: untagged(OpAtomicRequest, ddp.QNReadRequest, 4, nil),
	}
	immediate := unhex(t, "1122334455667788")
	require.Len(t, immediate, ImmediateLen)

	for _, tc := range []struct {
		name, hex string
		got       []byte
	}{
		{"Send", "41430000000000000000000000010000000068656c6c6f", untagged(OpSend, ddp.QNSend, 1, []byte("hello"))},
		{"Send with SE", "414500000000000000000000000200000000", untagged(OpSendSE, ddp.QNSend, 2, nil)},
		{"Write", "c14000abcd0100000000000010000001020304050607",
			tagged(OpWrite, 0x00abcd01, 0x1000, []byte{0, 1, 2, 3, 4, 5, 6, 7})},
		{"Write, empty", "c140000000010000000000000000", tagged(OpWrite, 1, 0, nil)},
		{
			"Read Request",
			"41410000000000000001000000010000000000000051000000000005200000000020000000530000000000054000",
			untagged(OpReadRequest, ddp.QNReadRequest, 1, put(ReadRequestLen, vectorReadRequest)),
		},
		{"Immediate Data", "4148000000000000000000000001000000001122334455667788",
			untagged(OpImmediate, ddp.QNSend, 1, immediate)},
		{"Immediate Data with SE", "4149000000000000000000000002000000001122334455667788",
			untagged(OpImmediateSE, ddp.QNSend, 2, immediate)}, {
			"FetchAdd",
			"414a00000000000000010000000100000000000000000000001100abcd0000007f0000001000000000000000000500000000000000000000000000000000ffffffffffffffff",
			untagged(OpAtomicRequest, ddp.QNReadRequest, 1, put(AtomicRequestLen, vectorFetchAdd)),
		},
		{
			"CmpSwap",
			"414a00000000000000010000000200000000000000020000001200abcd0000007f00000010080000000000000009ffffffffffffffff0000000000000005ffffffffffffffff",
			untagged(OpAtomicRequest, ddp.QNReadRequest, 2, put(AtomicRequestLen, vectorCmpSwap)),
		},
		{
			"Atomic Response",
			"414b00000000000000030000000100000000000000110000000000000029",
			untagged(OpAtomicResponse, ddp.QNAtomicResponse, 1, put(AtomicResponseLen, vectorAtomicResponse)),
		},
		{"Terminate", "41470000000000000002000000010000000002060000",
			untagged(OpTerminate, ddp.QNTerminate, 1, vectorTerminate.Append(nil))}, {
			"Terminate with a DDP header",
			"4147000000000000000200000001000000000207c0000046414a00000000000000010000000400000000",
			untagged(OpTerminate, ddp.QNTerminate, 1, quoting.Append(nil)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, unhex(t, tc.hex), tc.got)
		})
	}
}
