// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCause: the reason of a request is what the device knows of it, else what has ended its QP. A
// status is not its own reason.
func TestCause(t *testing.T) {
	s, ctx := newStub(t)
	f := newFamily(t, ctx)
	qp, err := f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv})
	require.NoError(t, err)
	access := &AccessError{Fault: AccessBounds, Key: 5, Element: 1}
	wc := WC{ID: 9, Status: WCLocProtErr, VendorErr: 0x42, QPNum: qp.Num(), Opcode: WCSend}
	of := func(opcode WCOpcode, known bool, reason error) *RequestError {
		return &RequestError{QPNum: qp.Num(), ID: 9, Status: WCLocProtErr, VendorErr: 0x42, Opcode: opcode,
			Known: known, Reason: reason}
	}
	for _, c := range []struct {
		name        string
		end, reason error
		want        *RequestError
	}{
		{"nothing is known", nil, nil, of(WCRDMARead, false, nil)},
		{"the end of the QP", io.EOF, nil, of(WCRDMARead, false, io.EOF)},
		{"the reason of the request", nil, access, of(WCRDMARead, true, access)},
		{"both", io.EOF, access, of(WCRDMARead, true, access)},
		{"the status has ended the QP", WCLocProtErr, nil, of(WCRDMARead, false, nil)},
		{"another status has", WCRetryExcErr, nil, of(WCRDMARead, false, WCRetryExcErr)},
	} {
		s.end, s.reason = c.end, c.reason
		require.Equal(t, c.want, qp.Cause(&wc), c.name)
	}
	require.NoError(t, qp.Cause(nil))
	good := wc
	good.Status = WCSuccess
	require.NoError(t, qp.Cause(&good))

	other := wc
	other.QPNum++
	s.end, s.reason = io.EOF, access
	err = qp.Cause(&other)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, err, WCLocProtErr)
	require.NotErrorIs(t, err, io.EOF, "it is not the reason of another QP's request")
	require.EqualError(t, err, "request 9 of QP 8: local protection error (vendor_err 0x42): "+
		"invalid argument: the completion is of QP 8, not of QP 7")

	require.NoError(t, qp.Close())
	require.Equal(t, of(WCRDMARead, true, access), qp.Cause(&wc), "after Close")
	f.close(t)
	s.closed(t, ctx)
}
