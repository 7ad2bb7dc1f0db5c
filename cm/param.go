// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ConnParam describes one side of a connection (struct rdma_conn_param).
type ConnParam struct {
	// PrivateData goes to the peer with the request, the acceptance or the rejection. How much a device carries is its
	// own matter: 508 bytes on the user-space siw, 251 on iWARP devices of the kernel. On InfiniBand and RoCE a request
	// carries 56, an acceptance 196, a rejection 148, and the peer sees as many, the rest being zeros; for
	// datagrams 180, 136 and 136. More is refused with a *verbs.LimitError.
	PrivateData []byte
	// InitiatorDepth is how many Reads and atomics this side may have in progress (ORD), ResponderResources how many of the
	// peer's it answers at a time (IRD). 0 = as many as the device can, None = none. The peer's values lower them:
	// ID.Depths tells what was agreed on, ID.PeerDepths what the peer said. The user-space siw tells the peer a power of two,
	// for which it rounds ResponderResources down: the siw of Linux rounds up what it is told.
	InitiatorDepth, ResponderResources int
	// RetryCount is how often the device sends a packet again that the peer has not acknowledged, RNRRetryCount how often
	// the *peer's* device sends again to a receiver that is not ready, 1 to 7 (0 = DefaultRetryCount and
	// DefaultRNRRetryCount, None = never; 7 of the latter = without end). Only what the active side gives as RetryCount
	// counts, for both. They are for InfiniBand and RoCE; iWARP has TCP for that. When they are used up a request fails
	// with verbs.WCRetryExcErr or verbs.WCRNRRetryExcErr. The rxe of Linux takes a RetryCount of 7 for without end
	// too, and never notices then that a host has gone.
	RetryCount, RNRRetryCount int
	// MinRNRTimer is how long the peer's device waits before it sends again to this side where no receive was posted, as
	// the code of ibv_modify_qp(3), 1 to 31 (0 = DefaultMinRNRTimer). InfiniBand and RoCE.
	MinRNRTimer uint8
}

const (
	// DefaultRetryCount is the most that every device counts.
	DefaultRetryCount = 6
	// DefaultRNRRetryCount is without end.
	DefaultRNRRetryCount = 7
	// DefaultMinRNRTimer is 0.64 ms.
	DefaultMinRNRTimer = 12
)

// None as a depth means that there are no Reads and atomics in that direction, as a count of retries that there are none.
const None = -1

// Depth returns the number that a depth of ConnParam stands for on a device that can do at most most. It fails for
// values that are out of range, naming the field.
func Depth(field string, v, most int) (int, error) {
	switch {
	case v == None:
		return 0, nil
	case v == 0:
		return most, nil
	case v < 0:
		return 0, fmt.Errorf("%w: %s %d", verbs.ErrInvalid, field, v)
	case v > most:
		return 0, &verbs.LimitError{Name: field, Limit: uint64(most), Value: uint64(v)}
	}
	return v, nil
}

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
