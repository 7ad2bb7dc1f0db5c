// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestGUID: a GUID is written as rdma-core writes it, and read back.
func TestGUID(t *testing.T) {
	for g, text := range map[verbs.GUID]string{0x0011223344556677: "0011:2233:4455:6677", 0: "0000:0000:0000:0000",
		1<<64 - 1: "ffff:ffff:ffff:ffff"} {
		require.Equal(t, text, fmt.Sprint(g))
		js, err := json.Marshal(g)
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(js))
		var back verbs.GUID
		require.NoError(t, json.Unmarshal(js, &back))
		require.Equal(t, g, back)
	}
	require.Contains(t, fmt.Sprintf("%+v", verbs.DeviceAttr{NodeGUID: 0x0011223344556677}),
		"NodeGUID:0011:2233:4455:6677")
	for _, bad := range []string{"", "0011:2233:4455", "0011:2233:4455:667", "0011:2233:4455:66777",
		"00112233:44556677", "g011:2233:4455:6677", "+011:2233:4455:6677"} {
		var g verbs.GUID
		require.ErrorIs(t, g.UnmarshalText([]byte(bad)), verbs.ErrInvalid, bad)
		require.Zero(t, g)
	}
}

func TestGIDJSON(t *testing.T) {
	g := verbs.GID{0xfe, 0x80, 15: 1}
	js, err := json.Marshal(g)
	require.NoError(t, err)
	require.Equal(t, `"fe80:0000:0000:0000:0000:0000:0000:0001"`, string(js))
	var back verbs.GID
	require.NoError(t, json.Unmarshal(js, &back))
	require.Equal(t, g, back)
	for _, bad := range []string{"", "192.0.2.1", "fe80::1%eth0", "fe80"} {
		require.ErrorIs(t, back.UnmarshalText([]byte(bad)), verbs.ErrInvalid, bad)
	}
}

// TestPrintValues: requests and completions are shown with what their opcode uses.
func TestPrintValues(t *testing.T) {
	sgl := []verbs.SGE{{Addr: 0x1000, Length: 8, LKey: 0x2a}}
	for _, c := range []struct {
		v    any
		text string
	}{
		{sgl[0], "SGE(addr=0x1000 length=8 lkey=0x2a)"},
		{verbs.RecvWR{ID: 7}, "RecvWR(wr_id=7 num_sge=0 length=0)"},
		{verbs.RecvWR{ID: 7, SGL: sgl},
			`RecvWR(wr_id=7 num_sge=1 length=8 sg_list="[SGE(addr=0x1000 length=8 lkey=0x2a)]")`},
		{verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, RemoteAddr: 16, RKey: 3, Flags: verbs.SendSignaled},
			"SendWR(wr_id=1 opcode=RDMA_WRITE send_flags=SIGNALED num_sge=0 length=0 remote_addr=0x10 rkey=0x3)"},
		{verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: 9},
			"SendWR(wr_id=0 opcode=SEND_WITH_INV send_flags=0 num_sge=0 length=0 invalidate_rkey=0x9)"},
		{verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 5},
			"SendWR(wr_id=0 opcode=IMM_DATA send_flags=0 num_sge=0 length=0 imm64=0x5)"},
		{verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: 1, Swap: 2},
			"SendWR(wr_id=0 opcode=ATOMIC_CMP_AND_SWP send_flags=0 num_sge=0 length=0 remote_addr=0x0 rkey=0x0 compare=0x1 swap=0x2)"},
		{verbs.WC{ID: 2, QPNum: 3, Status: verbs.WCRemAccessErr, VendorErr: 0x89},
			`WC(wr_id=2 status="remote access error" qp_num=3 vendor_err=0x89)`},
		{verbs.WC{ID: 2, QPNum: 3, Opcode: verbs.WCRecv, ByteLen: 5, Flags: verbs.WCWithImm, Imm64: 1 << 32},
			"WC(wr_id=2 status=success qp_num=3 opcode=RECV byte_len=5 wc_flags=WITH_IMM imm64=0x100000000)"},
	} {
		require.Equal(t, c.text, fmt.Sprint(c.v))
		require.Equal(t, "["+c.text+"]", fmt.Sprintf("%+v", []any{c.v}))
	}
	js, err := json.Marshal(verbs.WC{ID: 2})
	require.NoError(t, err)
	var back verbs.WC
	require.NoError(t, json.Unmarshal(js, &back))
	require.Equal(t, verbs.WC{ID: 2}, back, "encoding/json writes the fields")
}
