// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestCauseTexts: what the errors say, and which errors they are.
func TestCauseTexts(t *testing.T) {
	access := &verbs.AccessError{Fault: verbs.AccessMissingRight, Key: 0x2a00, Addr: 0x1000, Length: 64,
		Right: verbs.AccessLocalWrite, Element: 1}
	term := &verbs.TerminateError{Layer: 0, Type: 1, Code: 2, Remote: true,
		Text: "RDMAP remote protection error: access rights", Access: access}
	for _, c := range []struct {
		err  error
		text string
		is   []error
	}{
		{access, "element 1: the memory of key 0x2a00 lacks LOCAL_WRITE (64 bytes at 0x1000)", nil},
		{&verbs.AccessError{Fault: verbs.AccessBounds, Key: 1, Addr: 2, Length: 3, Element: -1},
			"the memory of key 0x1 does not contain the range (3 bytes at 0x2)",
			[]error{verbs.ErrBounds}},
		{&verbs.AccessError{Fault: verbs.AccessWraps, Key: 1, Addr: 2},
			"element 0: the range with key 0x1 wraps around (at 0x2)",
			[]error{verbs.ErrBounds}},
		{&verbs.AccessError{Fault: verbs.AccessForeign, Key: 1, Element: -1},
			"the memory of key 0x1 is of another PD, or the window of another QP", []error{verbs.ErrForeign}},
		{&verbs.AccessError{Fault: verbs.AccessNoInvalidate, Key: 1, Element: -1}, "key 0x1 cannot be invalidated",
			nil},
		{&verbs.AccessError{Fault: verbs.AccessBadKey, Key: 1, Addr: 16, Element: -1},
			"no memory has key 0x1 (at 0x10)", nil},
		{&verbs.AccessError{Fault: verbs.AccessMissingRight, Key: 1, Element: -1},
			"the memory of key 0x1 lacks a right", nil},
		{&verbs.AccessError{Fault: verbs.AccessQPRight, Key: 1, Right: verbs.AccessRemoteRead, Element: -1},
			"the QP lacks REMOTE_READ, for the memory of key 0x1", nil},
		{&verbs.AccessError{Fault: verbs.AccessOfWindow, Key: 1, Element: 2},
			"element 2: key 0x1 is that of a window, which is for peers only", nil},
		{&verbs.AccessError{Fault: verbs.AccessMisaligned, Key: 1, Addr: 4, Length: 8, Element: -1},
			"an atomic needs an address that is a multiple of 8, in the memory of key 0x1 (8 bytes at 0x4)", nil},
		{&verbs.AccessError{Fault: 99, Key: 1, Element: -1}, "key 0x1: AccessFault(99)", nil},
		{term, "terminated by peer: RDMAP remote protection error: access rights (0/1/02): " + access.Error(),
			[]error{access}},
		{&verbs.RequestError{QPNum: 5, ID: 7, Status: verbs.WCRemAccessErr, Opcode: verbs.WCRDMARead, Known: true,
			Reason: term},
			"RDMA_READ 7 of QP 5: remote access error: " + term.Error(), []error{verbs.WCRemAccessErr, term, access}},
		{&verbs.RequestError{QPNum: 5, ID: 7, Status: verbs.WCRetryExcErr, VendorErr: 0x81},
			"request 7 of QP 5: transport retry counter exceeded (vendor_err 0x81)", []error{verbs.WCRetryExcErr}},
		{verbs.EndModify, "ended by this side: the QP was moved to ERR", []error{verbs.ErrClosed}},
		{verbs.EndClose, "ended by this side: the QP was closed", []error{verbs.ErrClosed}},
		{verbs.EndDisconnect, "ended by this side: the connection was closed", []error{verbs.ErrClosed}},
	} {
		require.EqualError(t, c.err, c.text)
		for _, is := range c.is {
			require.ErrorIs(t, c.err, is)
		}
		require.False(t, errors.Is(c.err, io.EOF))
		require.False(t, errors.Is(c.err, verbs.ErrBusy))
	}
	require.NoError(t, errors.Unwrap(&verbs.TerminateError{}), "no access")
	require.Equal(t, []error{verbs.WCGeneralErr}, (&verbs.RequestError{Status: verbs.WCGeneralErr}).Unwrap(),
		"no reason")
	for fault, text := range map[verbs.AccessFault]string{
		verbs.AccessBadKey: "unknown key", verbs.AccessForeign: "foreign memory",
		verbs.AccessMissingRight: "missing right",
		verbs.AccessQPRight:      "missing right of the QP", verbs.AccessBounds: "out of bounds",
		verbs.AccessWraps:        "address wraps around",
		verbs.AccessNoInvalidate: "key cannot be invalidated", verbs.AccessOfWindow: "key of a window",
		verbs.AccessMisaligned: "misaligned address",
	} {
		require.Equal(t, text, fault.String())
	}
	require.NotErrorIs(t, access, verbs.ErrBounds)
}
