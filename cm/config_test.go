// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpErrorIsANetError(t *testing.T) {
	var err error = opError("Connect", "h:1", fmt.Errorf("%w after 10s", ErrSetupTimeout))
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.EqualError(t, err, "cm: Connect h:1: connection set-up timed out after 10s")
	require.ErrorAs(t, opError("Connect", "h:1", context.DeadlineExceeded), &ne)
	require.True(t, ne.Timeout())
	require.ErrorAs(t, opError("Connect", "h:1", ErrRejected), &ne)
	require.False(t, ne.Timeout())
	require.NoError(t, opError("Connect", "h:1", nil))
	rejected := opError("Connect", "h:1", &RejectedError{PrivateData: []byte("no")})
	require.ErrorIs(t, rejected, ErrRejected)
	var re *RejectedError
	require.True(t, errors.As(rejected, &re))
	require.Equal(t, "no", string(re.PrivateData))
}

func TestEventTexts(t *testing.T) {
	require.Equal(t, "RDMA_CM_EVENT_ESTABLISHED", EventEstablished.String())
	require.EqualValues(t, 9, EventEstablished)
	require.EqualValues(t, 10, EventDisconnected)
	require.Equal(t, "Event(99)", Event(99).String())
	require.Equal(t, "RDMA_CM_EVENT_TIMEWAIT_EXIT", EventTimewaitExit.String())
	require.Equal(t, "Event(16)", (EventTimewaitExit + 1).String())
	require.Equal(t, "PortSpace(0x77)", PortSpace(0x77).String())
}

func TestEventErrors(t *testing.T) {
	for _, c := range []struct {
		ev     Event
		status int
		text   string
		is     error
	}{
		{EventDisconnected, 0, "RDMA_CM_EVENT_DISCONNECTED", nil},
		{EventDisconnected, 8, "RDMA_CM_EVENT_DISCONNECTED: status 8", nil},
		{EventDisconnected, -int(syscall.ECONNRESET), "RDMA_CM_EVENT_DISCONNECTED: connection reset by peer",
			syscall.ECONNRESET},
		{EventRejected, 0, "RDMA_CM_EVENT_REJECTED: code 0", nil},
		{EventRejected, 8, "RDMA_CM_EVENT_REJECTED: invalid service ID (8)", syscall.ECONNREFUSED},
		{EventRejected, 10, "RDMA_CM_EVENT_REJECTED: stale connection (10)", nil},
		{EventUnreachable, 8, "RDMA_CM_EVENT_UNREACHABLE: code 8", nil},
		{EventUnreachable, -int(syscall.ETIMEDOUT), "RDMA_CM_EVENT_UNREACHABLE: connection timed out", ErrSetupTimeout},
	} {
		err := eventError(c.ev, c.status)
		require.EqualError(t, err, c.text)
		if c.is == nil {
			require.NoError(t, errors.Unwrap(err), c.text)
		} else {
			require.ErrorIs(t, err, c.is)
		}
	}
	require.EqualError(t, Rejected([]byte("goverbs: backlog full"), 1, 2),
		"connection rejected by the peer: backlog full")
	require.EqualError(t, &RejectedError{PrivateData: make([]byte, 3)},
		"connection rejected by the peer (3 bytes of private data)")
	require.EqualError(t, opError("Connect", "", ErrRejected), "cm: Connect: "+ErrRejected.Error())
	var ne net.Error
	require.ErrorAs(t, opError("Connect", "h:1", ErrRejected), &ne)
	require.False(t, ne.Temporary()) //nolint:staticcheck // net.Error has it
}
