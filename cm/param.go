// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ConnParam describes one side of a connection (struct rdma_conn_param).
type ConnParam struct {
	// PrivateData is sent to the peer with the request, the acceptance or the rejection. The
	// maximum depends on the device: 508 bytes on the user-space siw, 251 on iWARP devices of the
	// kernel. On InfiniBand and RoCE it is 56 in a request, 196 in an acceptance, 148 in a
	// rejection; for datagrams 180, 136 and 136. There the peer always receives the maximum, filled
	// up with zeros. More is refused with a *verbs.LimitError.
	PrivateData []byte
	// InitiatorDepth is the number of Reads and atomics that this side may have in progress (ORD),
	// ResponderResources the number of the peer's that it answers at a time (IRD). 0 = the maximum
	// of the device, None = none. The values of the peer can lower them: ID.Depths returns the
	// agreed values, ID.PeerDepths those of the peer. The user-space siw rounds ResponderResources
	// down to a power of two, because the siw of Linux rounds the value that it receives up.
	InitiatorDepth, ResponderResources int
	// RetryCount is the number of times that the device resends a packet which the peer has not
	// acknowledged, RNRRetryCount the number of times that the *peer's* device resends to a
	// receiver that is not ready. Both are 1 to 7 (0 = DefaultRetryCount and DefaultRNRRetryCount,
	// None = never); an RNRRetryCount of 7 has no limit. The RetryCount of the active side is used
	// for both sides. Both are for InfiniBand and RoCE; on iWARP TCP resends. When they are used
	// up, a request fails with verbs.WCRetryExcErr or verbs.WCRNRRetryExcErr. For rxe of Linux a
	// RetryCount of 7 also has no limit; then it never notices that a host has gone.
	RetryCount, RNRRetryCount int
	// MinRNRTimer is the time that the peer's device waits before it resends a message for which
	// this side had no receive posted. It is a code of ibv_modify_qp(3), 1 to 31 (0 =
	// DefaultMinRNRTimer), for InfiniBand and RoCE.
	MinRNRTimer uint8
}

const (
	// DefaultRetryCount is the largest count that is a limit on every device.
	DefaultRetryCount = 6
	// DefaultRNRRetryCount means no limit.
	DefaultRNRRetryCount = 7
	// DefaultMinRNRTimer is 0.64 ms.
	DefaultMinRNRTimer = 12
)

// None as a depth means that there are no Reads and atomics in that direction, as a count of
// retries that there are none.
const None = -1

// retries returns the number that a count of retries of ConnParam stands for, for 0 the default.
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
