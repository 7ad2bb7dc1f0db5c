// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ProtocolError says that the peer has not kept to the protocol of the engine. It ends the
// connection; nothing of the message that it is about has been done.
type ProtocolError struct {
	Reason error // what was wrong
}

// Error names what was wrong.
func (e *ProtocolError) Error() string {
	return "ibcompat: protocol error of the peer: " + e.Reason.Error()
}

// Unwrap returns the Reason.
func (e *ProtocolError) Unwrap() error { return e.Reason }

// violation returns a *ProtocolError.
func violation(format string, args ...any) error { return &ProtocolError{fmt.Errorf(format, args...)} }

// PeerError says that there can be no connection with a peer: it is not an ib: device, or one of
// another version.
type PeerError struct {
	Reason error
	Remote bool // the peer says so
}

// Error says who found what.
func (e *PeerError) Error() string {
	if e.Remote {
		return "ibcompat: the peer refuses this device: " + e.Reason.Error()
	}
	return e.Reason.Error()
}

// Unwrap returns the Reason.
func (e *PeerError) Unwrap() error { return e.Reason }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", verbs.ErrInvalid, fmt.Sprintf(format, args...))
}
