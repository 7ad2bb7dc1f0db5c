// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// ErrProtocol reports that the peer violated the protocol; see [ProtocolError].
var ErrProtocol = errors.New("the peer violates the rsocket protocol")

// Violation is the way in which a peer violated the protocol.
type Violation uint8

const (
	ShortPrivateData Violation = iota // private data of less than 40 bytes
	WrongVersion                      // a version other than 1
	ShortTable                        // a table of less than 2 entries
	BadMemory                         // memory of length 0 or that wraps around
	NoCredits                         // private data that allow no message
	// an unknown operation or control code, or a message that is not 4 bytes long
	UnknownMessage
	EmptyData        // data of 0 bytes
	TooMuchData      // more data than the published entry has room for
	Uncredited       // more messages than this side granted
	CreditsTakenBack // a limit below an earlier one, or beyond the size of the peer's queue
	BadIndex         // a mapping with an index outside the table
	DataAfterEnd     // data after SHUTDOWN
)

// String returns a description, for example "data of 0 bytes".
func (v Violation) String() string {
	if int(v) >= len(violationTexts) {
		return fmt.Sprintf("Violation(%d)", uint8(v))
	}
	return violationTexts[v]
}

var violationTexts = [...]string{
	ShortPrivateData: "short private data",
	WrongVersion:     "wrong version",
	ShortTable:       "table of less than 2 entries",
	BadMemory:        "memory of length 0 or that wraps around",
	NoCredits:        "no credits",
	UnknownMessage:   "unknown message",
	EmptyData:        "data of 0 bytes",
	TooMuchData:      "more data than there is room for",
	Uncredited:       "message without credit",
	CreditsTakenBack: "credits taken back",
	BadIndex:         "index out of range",
	DataAfterEnd:     "data after the end",
}

// ProtocolError terminates a connection whose peer violated the protocol. It Is [ErrProtocol].
type ProtocolError struct {
	Violation Violation
	Value     uint64 // what the peer sent
	Limit     uint64 // what was allowed, 0 if that is not a number
}

// Error names the violation and the numbers.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %v (%#x, allowed %#x)", ErrProtocol, e.Violation, e.Value, e.Limit)
}

// Is reports whether target is ErrProtocol.
func (e *ProtocolError) Is(target error) bool { return target == ErrProtocol }

func violation(v Violation, value, limit uint64) error {
	return &ProtocolError{Violation: v, Value: value, Limit: limit}
}

// wireNet is the network name in the errors of connections.
const wireNet = "rsocket"

// opError returns the error of a call that concerns up to two addresses, either of which may be
// nil. It returns nil if err is nil.
func opError(op string, local, remote net.Addr, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: wireNet, Source: local, Addr: remote, Err: err}
}

// and adds further errors, if any, to err. Without any it returns err itself, so that it can still
// be a timeout.
func and(err error, also ...error) error {
	if more := errors.Join(also...); more != nil {
		return errors.Join(err, more)
	}
	return err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", verbs.ErrInvalid, fmt.Sprintf(format, args...))
}
