// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestDepth(t *testing.T) {
	for _, c := range []struct{ v, want int }{{0, 128}, {None, 0}, {1, 1}, {128, 128}} {
		got, err := Depth("InitiatorDepth", c.v, 128)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := Depth("InitiatorDepth", 129, 128)
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.EqualError(t, err, "InitiatorDepth: 129 exceeds the limit 128")
	_, err = Depth("ResponderResources", -2, 128)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "ResponderResources -2")
}

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
}
