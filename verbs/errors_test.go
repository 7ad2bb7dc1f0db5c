// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpError(t *testing.T) {
	err := opError("CreateQP", "usiw0", &LimitError{Name: "max_qp", Limit: 2, Value: 3})
	require.EqualError(t, err, "verbs: CreateQP on usiw0: max_qp: 3 exceeds the limit 2")
	require.ErrorIs(t, err, ErrLimit)
	require.NotErrorIs(t, err, ErrInvalid)
	var le *LimitError
	require.ErrorAs(t, err, &le)
	require.EqualValues(t, 2, le.Limit)
	require.NoError(t, opError("CreateQP", "usiw0", nil))
	require.EqualError(t, opError("Open", "", ErrNoDevice), "verbs: Open: no RDMA device")
	require.ErrorIs(t, opError("Open", "", syscall.EPERM), os.ErrPermission, "an errno stays one")
}

func TestErrClosed(t *testing.T) {
	err := opError("Poll", "usiw0", ErrClosed)
	for _, target := range []error{ErrClosed, net.ErrClosed, os.ErrClosed} {
		require.ErrorIs(t, err, target)
	}
}

func TestStatusIsAnError(t *testing.T) {
	require.NoError(t, (&WC{}).Err())
	err := (&WC{Status: WCRemAccessErr}).Err()
	require.ErrorIs(t, err, WCRemAccessErr)
	require.NotErrorIs(t, err, WCWRFlushErr)
	require.EqualError(t, err, "remote access error")
}

func TestTerminateError(t *testing.T) {
	err := error(&TerminateError{Layer: 0, Type: 1, Code: 2, Remote: true,
		Text: "RDMAP remote protection error: access rights"})
	require.EqualError(t, err, "terminated by peer: RDMAP remote protection error: access rights (0/1/02)")
	require.ErrorIs(t, err, &TerminateError{Type: 1, Code: 2, Remote: true})
	require.NotErrorIs(t, err, &TerminateError{Type: 1, Code: 2})
	require.False(t, errors.Is(err, ErrClosed))
}
