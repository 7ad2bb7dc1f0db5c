// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestError(t *testing.T) {
	var err error = &dat.Error{Call: "EP.Reset", Type: dat.InvalidState, Subtype: dat.InvalidStateEPConnected,
		Err: io.EOF}
	require.EqualError(t, err, "dat: EP.Reset: DAT_INVALID_STATE DAT_INVALID_STATE_EP_CONNECTED: EOF")
	wrapped := fmt.Errorf("porting: %w", err)
	require.ErrorIs(t, wrapped, dat.InvalidState)
	require.ErrorIs(t, wrapped, dat.InvalidStateEPConnected)
	require.ErrorIs(t, wrapped, io.EOF)
	require.NotErrorIs(t, wrapped, dat.InvalidHandle)
	require.NotErrorIs(t, wrapped, dat.InvalidStateEPDisconnected)
	var e *dat.Error
	require.ErrorAs(t, wrapped, &e)
	require.Equal(t, uint32(0x80070033), e.Code())

	plain := &dat.Error{Call: "EVD.Dequeue", Type: dat.QueueEmpty}
	require.EqualError(t, plain, "dat: EVD.Dequeue: DAT_QUEUE_EMPTY")
	require.False(t, errors.Is(plain, dat.NoSubtype))
	require.EqualError(t, dat.Return(0x123), "DAT return type 0x123")
	require.EqualError(t, dat.Subtype(999), "DAT return subtype 999")
}

// The texts of numbers, including those without a name.
func TestNames(t *testing.T) {
	for want, v := range map[string]any{
		"SUPPRESS|BARRIER_FENCE": dat.CompletionSuppress | dat.CompletionBarrierFence, "DEFAULT": dat.CompletionDefault,
		"IMMED|0x80000000": dat.DTOImmedFlag | 1<<31, "CR|DTO|CONNECTION": dat.EVDCR | dat.EVDDTO | dat.EVDConnection,
		"LOCAL_READ|REMOTE_READ|LOCAL_WRITE|REMOTE_WRITE": dat.MemPrivAll,
		"RECEIVE_RDMA_IMMED":                              dat.DTOReceiveRDMAImmed, "DTO 99": dat.DTO(99),
		"FETCH_AND_ADD": dat.FetchAndAdd, "MASKED_CMP_AND_SWAP": dat.MaskedCmpAndSwap, "extension 7": dat.Extension(7),
		"DAT_DTO_ERR_FLUSHED": dat.DTOErrFlushed, "DTO status 99": dat.DTOStatus(99),
		"COMPLETION_PENDING":          dat.EPCompletionPending,
		"DAT_CONNECTION_EVENT_BROKEN": dat.ConnectionBroken, "event 0x77": dat.EventNumber(0x77),
	} {
		require.Equal(t, want, fmt.Sprint(v))
	}
}

// How each completion status is mapped. Those not listed are transport errors.
func TestStatusOf(t *testing.T) {
	status := map[verbs.WCStatus]dat.DTOStatus{
		verbs.WCSuccess: dat.DTOSuccess, verbs.WCWRFlushErr: dat.DTOErrFlushed,
		verbs.WCLocLenErr:  dat.DTOErrLocalLength,
		verbs.WCLocQPOpErr: dat.DTOErrLocalEP, verbs.WCLocEECOpErr: dat.DTOErrLocalEP,
		verbs.WCLocProtErr: dat.DTOErrLocalProtection, verbs.WCLocAccessErr: dat.DTOErrLocalProtection,
		verbs.WCBadRespErr: dat.DTOErrBadResponse, verbs.WCRemAccessErr: dat.DTOErrRemoteAccess,
		verbs.WCRemOpErr: dat.DTOErrRemoteResponder, verbs.WCRemInvReqErr: dat.DTOErrRemoteResponder,
		verbs.WCRemAbortErr: dat.DTOErrRemoteResponder, verbs.WCRNRRetryExcErr: dat.DTOErrReceiverNotReady,
	}
	for s := range verbs.WCGeneralErr + 10 {
		want, ok := status[s]
		if !ok {
			want = dat.DTOErrTransport
		}
		require.Equal(t, want, dat.StatusOf(s), "%v", s)
	}
}

// Open by name, with and without the prefix.
func TestOpen(t *testing.T) {
	nic, err := usiw.Register(usiw.Config{Name: "dat0"})
	require.NoError(t, err)
	defer nic.Close()
	for _, name := range []string{"dat0", "ib:dat0"} {
		ia, err := dat.Open(name, dat.Config{})
		require.NoError(t, err)
		_, attr, _, err := ia.Query()
		require.NoError(t, err)
		require.Equal(t, "ib:dat0", attr.AdapterName)
		require.NoError(t, ia.Close(dat.CloseGraceful))
		require.NoError(t, ia.Close(dat.CloseAbrupt), "it is idempotent")
	}
	_, err = dat.Open("dat1", dat.Config{})
	require.ErrorIs(t, err, dat.ProviderNotFound)
	require.ErrorIs(t, err, dat.NameNotRegistered)
	_, err = dat.Open("dat0", dat.Config{AsyncQLen: -1})
	require.ErrorIs(t, err, dat.InvalidArg2)
}

// Handles are printed without their internals, including nil and freed ones.
func TestPrint(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a := newSide(t, dev, addr, options{})
		psp, qual := a.listen()
		for want, v := range map[string]any{
			fmt.Sprintf("IA(device=%s stage=open)", dev.Name()):                 a.ia,
			fmt.Sprintf("PZ(ia=%s stage=open)", dev.Name()):                     a.pz,
			fmt.Sprintf("EVD(ia=%s flags=DTO qlen=256 stage=open)", dev.Name()): a.recv,
			fmt.Sprintf("EP(ia=%s state=UNCONNECTED stage=open)", dev.Name()):   a.ep,
			fmt.Sprintf("PSP(ia=%s conn_qual=%d stage=open)", dev.Name(), qual): psp,
			"no IA": (*dat.IA)(nil), "no EP": new(dat.EP), "no CR": (*dat.CR)(nil), "no LMR": new(dat.LMR),
		} {
			require.Equal(t, want, fmt.Sprintf("%+v", v))
			_, err := json.Marshal(v)
			require.NoError(t, err)
		}
		require.Contains(t, a.lmr.String(), "bytes=65536")
		require.NoError(t, a.ep.Free())
		require.Contains(t, a.ep.String(), "stage=closed")
	})
}
