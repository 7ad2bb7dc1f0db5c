// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/goverbs/goverbs/internal/refusal"
)

// The causes that errors of this package wrap, in addition to those of package verbs.
var (
	// ErrRejected: the peer refused the connection; see [RejectedError] for its private data.
	ErrRejected = errors.New("connection rejected by the peer")
	// ErrProtocol: the peer violated the protocol during connection setup.
	ErrProtocol = errors.New("protocol error during connection set-up")
	// ErrSetupTimeout: the peer did not answer in time.
	ErrSetupTimeout = errors.New("connection set-up timed out")
)

// RejectedError says that the peer refused the connection. It Is [ErrRejected].
type RejectedError struct {
	PrivateData []byte // sent by the peer's program with the refusal
	// why the peer's listener refused, such as "backlog full"; empty if its program refused, or if
	// no reason was sent
	Reason   string
	IRD, ORD int // the depths that the peer requests, -1 if it sent none
}

// Rejected returns the error for a refusal with this private data.
func Rejected(private []byte, ird, ord int) *RejectedError {
	e := &RejectedError{IRD: ird, ORD: ord}
	e.Reason, e.PrivateData = refusal.Split(private)
	return e
}

// Error returns the text of ErrRejected with the reason or, without one, the length of the private
// data.
func (e *RejectedError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%v: %s", ErrRejected, e.Reason)
	}
	return fmt.Sprintf("%v (%d bytes of private data)", ErrRejected, len(e.PrivateData))
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// OpError is the error of a call: its name, its address and the cause. It implements net.Error.
type OpError struct {
	Op   string // the call, for example "Connect"
	Addr string // as passed to the call, or as resolved
	Err  error
}

// Error returns "cm: OP ADDRESS: CAUSE".
func (e *OpError) Error() string {
	if e.Addr == "" {
		return "cm: " + e.Op + ": " + e.Err.Error()
	}
	return "cm: " + e.Op + " " + e.Addr + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the cause is a timeout.
func (e *OpError) Timeout() bool {
	if errors.Is(e.Err, ErrSetupTimeout) {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary reports whether the system lacks descriptors or memory, so that another Accept may
// succeed.
func (e *OpError) Temporary() bool {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(e.Err, no) {
			return true
		}
	}
	return false
}

var _ net.Error = (*OpError)(nil)

// opError wraps err in an OpError, or returns nil for nil. It replaces any OpError of a call on an
// inner device.
func opError(op, addr string, err error) error {
	if err == nil {
		return nil
	}
	for {
		below, ok := err.(*OpError)
		if !ok {
			return &OpError{Op: op, Addr: addr, Err: err}
		}
		err = below.Err
	}
}

// and joins a second error to err, if there is one.
func and(err, also error) error {
	if also == nil {
		return err
	}
	return errors.Join(err, also)
}
