// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ProtocolError reports that the peer violated the engine's protocol. It ends the connection; the
// offending message has no effect.
type ProtocolError struct {
	Reason error // what was wrong
}

// Error returns what was wrong.
func (e *ProtocolError) Error() string {
	return "ibcompat: protocol error of the peer: " + e.Reason.Error()
}

// Unwrap returns the Reason.
func (e *ProtocolError) Unwrap() error { return e.Reason }

// violation returns a *ProtocolError.
func violation(format string, args ...any) error { return &ProtocolError{fmt.Errorf(format, args...)} }

// PeerError reports that no connection with the peer is possible: it is not an ib: device, or has
// another version.
type PeerError struct {
	Reason error
	Remote bool // reported by the peer
}

// Error returns the reason, and whether the peer reported it.
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
