// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTexts compares the values and texts with those of rdma-core: ibv_wc_status_str,
// ibv_event_type_str and the others.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		n    int
		text string
	}{
		{NodeRNIC, 4, "iWARP NIC"},
		{TransportIB, 0, "InfiniBand"},
		{TransportIWARP, 1, "iWARP"},
		{TransportUnknown, -1, "Transport(-1)"},
		{PortActive, 4, "active"},
		{LinkLayerEthernet, 2, "Ethernet"},
		{AtomicGlob, 2, "ATOMIC_GLOB"},
		{QPTypeRC, 2, "RC"},
		{QPStateRTS, 3, "RTS"},
		{QPStateErr, 6, "ERR"},
		{MWType2, 2, "TYPE_2"},
		{WRRDMAWriteWithImm, 1, "RDMA_WRITE_WITH_IMM"},
		{WRSendWithInv, 9, "SEND_WITH_INV"},
		{WRMaskedAtomicCmpAndSwp, 12, "MASKED_ATOMIC_CMP_AND_SWP"},
		{WRMaskedAtomicFetchAndAdd, 13, "MASKED_ATOMIC_FETCH_AND_ADD"},
		{WROpcode(63), 63, "WROpcode(63)"},
		{WCSuccess, 0, "success"},
		{WCLocLenErr, 1, "local length error"},
		{WCWRFlushErr, 5, "Work Request Flushed Error"},
		{WCMWBindErr, 6, "memory management operation error"},
		{WCRemInvReqErr, 9, "remote invalid request error"},
		{WCRemAccessErr, 10, "remote access error"},
		{WCRNRRetryExcErr, 13, "RNR retry counter exceeded"},
		{WCGeneralErr, 21, "general error"},
		{WCStatus(99), 99, "WCStatus(99)"},
		{WCRecv, 128, "RECV"},
		{WCRecvRDMAWithImm, 129, "RECV_RDMA_WITH_IMM"},
		{WCFetchAdd, 4, "FETCH_ADD"},
		{EventCQErr, 0, "CQ error"},
		{EventQPAccessErr, 3, "local access violation work queue error"},
		{EventGIDChange, 18, "GID table change"},
	} {
		require.Equal(t, c.text, c.v.String())
		require.EqualValues(t, fmt.Sprint(c.n), fmt.Sprintf("%d", c.v), c.text)
	}
}

func TestFlags(t *testing.T) {
	require.Equal(t, "0", AccessFlags(0).String())
	require.Equal(t, "LOCAL_WRITE|REMOTE_ATOMIC", (AccessLocalWrite | AccessRemoteAtomic).String())
	require.Equal(t, "FENCE|0x40", (SendFence | 0x40).String())
	require.Equal(t, "SIGNALED|RELAXED", (SendSignaled | SendRelaxed).String())
	require.Equal(t, "WITH_IMM|WITH_INV", (WCWithImm | WCWithInv).String())
	require.Equal(t, "STATE|DEST_QPN", (QPAttrState | QPAttrDestQPN).String())
	require.Equal(t, 4096, MTU4096.Bytes())
	require.Equal(t, 256, MTU256.Bytes())
	require.Zero(t, MTU(6).Bytes())
}

// TestReceivesHaveTheirBit is what ibv_wc_opcode promises: a receive is told by the bit of WCRecv.
func TestReceivesHaveTheirBit(t *testing.T) {
	for _, o := range []WCOpcode{WCRecv, WCRecvRDMAWithImm, WCRecvImmData} {
		require.True(t, (&WC{Opcode: o}).IsRecv(), o)
	}
	for _, o := range []WCOpcode{WCSend, WCRDMAWrite, WCRDMARead, WCCompSwap, WCFetchAdd, WCMaskedFetchAdd, WCImmData,
		WCBindMW} {
		require.False(t, (&WC{Opcode: o}).IsRecv(), o)
	}
}

// TestCompletion: a request and its completion have the same text, apart from what the completion
// does not tell.
func TestCompletion(t *testing.T) {
	texts := map[WROpcode]string{WRRDMAWriteWithImm: "RDMA_WRITE", WRSendWithImm: "SEND", WRSendWithInv: "SEND",
		WRAtomicCmpAndSwp: "COMP_SWAP", WRAtomicFetchAndAdd: "FETCH_ADD",
		WRMaskedAtomicCmpAndSwp: "MASKED_COMP_SWAP", WRMaskedAtomicFetchAndAdd: "MASKED_FETCH_ADD"}
	for _, o := range []WROpcode{WRRDMAWrite, WRRDMAWriteWithImm, WRSend, WRSendWithImm, WRRDMARead, WRAtomicCmpAndSwp,
		WRAtomicFetchAndAdd, WRLocalInv, WRBindMW, WRSendWithInv, WRMaskedAtomicCmpAndSwp, WRMaskedAtomicFetchAndAdd,
		WRAtomicWrite, WRImmData} {
		want, differs := texts[o]
		if !differs {
			want = o.String()
		}
		require.Equal(t, want, o.Completion().String(), o)
		require.False(t, (&WC{Opcode: o.Completion()}).IsRecv(), o)
	}
	require.Equal(t, WCSend, WROpcode(63).Completion())
}

func TestOpSet(t *testing.T) {
	s := MakeOpSet(OpSend, OpMaskedFetchAdd)
	require.True(t, s.Has(OpSend))
	require.False(t, s.Has(OpRead))
	require.False(t, s.Has(200))
	require.Equal(t, "send,masked-fetch-add", s.String())
	seen := OpSet(0)
	for o := range Ops() {
		require.NotContains(t, o.String(), "Op(", "every operation has a name")
		seen |= MakeOpSet(o)
	}
	require.Equal(t, AllOps, seen)
	for range Ops() {
		break // the iterator can be left
	}
	require.Equal(t, "Op(99)", Op(99).String())
}

func TestMTUOf(t *testing.T) {
	for m := MTU256; m <= MTU4096; m++ {
		got, err := MTUOf(m.Bytes())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	for _, bytes := range []int{-1, 0, 1, 255, 1500, 4097, 8192} {
		_, err := MTUOf(bytes)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprint(bytes))
	}
}
