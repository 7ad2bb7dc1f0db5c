// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ConnParam describes one side of a connection (struct rdma_conn_param).
type ConnParam struct {
	// PrivateData is sent to the peer with the request, acceptance or rejection. The maximum
	// depends on the device: 508 bytes on the user-space RNIC and 251 on iWARP kernel devices. On
	// InfiniBand and RoCE it is 56 in a request, 196 in an acceptance and 148 in a rejection; for
	// datagrams 180, 136 and 136. There the peer always receives the maximum, padded with zeros.
	// Longer data are refused with a *verbs.LimitError.
	PrivateData []byte
	// InitiatorDepth is the number of Reads and atomics that this side may have outstanding (ORD),
	// ResponderResources the number from the peer that it serves at once (IRD). 0 means the
	// device's maximum, None means none. The peer's values can lower them: ID.Depths returns the
	// negotiated values, ID.PeerDepths the peer's. The user-space RNIC rounds ResponderResources
	// down to a power of two, because kernel siw rounds up the value that it receives.
	InitiatorDepth, ResponderResources int
	// RetryCount is the number of times that the device retransmits a packet that the peer has not
	// acknowledged, RNRRetryCount the number of times that the *peer's* device retransmits to a
	// receiver that is not ready. Both are 1 to 7 (0 = DefaultRetryCount and DefaultRNRRetryCount,
	// None = never); an RNRRetryCount of 7 means no limit. The RetryCount of the active side
	// applies to both sides. Both counts are for InfiniBand and RoCE; on iWARP, TCP retransmits.
	// When a count is exhausted, the request fails with verbs.WCRetryExcErr or
	// verbs.WCRNRRetryExcErr. On rxe a RetryCount of 7 also means no limit, so it never detects
	// that a host is gone.
	RetryCount, RNRRetryCount int
	// MinRNRTimer is the time that the peer's device waits before it retransmits a message for
	// which this side had no receive posted. It is a code of ibv_modify_qp(3), 1 to 31 (0 =
	// DefaultMinRNRTimer), for InfiniBand and RoCE.
	MinRNRTimer uint8
}

const (
	// DefaultRetryCount is the largest value that every device treats as a limit.
	DefaultRetryCount = 6
	// DefaultRNRRetryCount means no limit.
	DefaultRNRRetryCount = 7
	// DefaultMinRNRTimer is 0.64 ms.
	DefaultMinRNRTimer = 12
)

// None disables: as a depth, Reads and atomics in that direction; as a retry count, retries.
const None = -1

// retries returns the number of retries that a retry count of ConnParam means; def for 0.
func retries(field string, v int, def uint8) (uint8, error) {
	switch {
	case v == None:
		return 0, nil
	case v == 0:
		return def, nil
	case v < 0:
		return 0, fmt.Errorf("%w: %s %d", verbs.ErrInvalid, field, v)
	case v > 7:
		return 0, &verbs.LimitError{Name: field, Limit: 7, Value: uint64(v)}
	}
	return uint8(v), nil
}
