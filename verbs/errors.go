// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// Causes wrapped by the errors of this package. They are never returned bare: test with errors.Is.
var (
	// ErrClosed: the handle, or a parent that a new object needs, is closed. It also matches
	// net.ErrClosed and os.ErrClosed in errors.Is.
	ErrClosed = lifetime.ErrClosed
	// ErrBusy: the object cannot be closed because live objects depend on it (EBUSY).
	ErrBusy = lifetime.ErrBusy
	// ErrNotSupported: the provider or the device lacks the operation (EOPNOTSUPP).
	ErrNotSupported = errors.New("operation not supported")
	// ErrNoDevice: no device was found or chosen (ENODEV).
	ErrNoDevice = errors.New("no RDMA device")
	// ErrForeign: objects used together belong to different devices, contexts or protection
	// domains.
	ErrForeign = errors.New("objects do not belong together")
	// ErrInvalid: an argument is invalid on every device (EINVAL).
	ErrInvalid = errors.New("invalid argument")
	// ErrLimit: a limit of the device or of the object is exceeded; see [LimitError].
	ErrLimit = errors.New("limit exceeded")
	// ErrBounds: an offset or length is out of range of the memory (ERANGE).
	ErrBounds = errors.New("out of the bounds of the memory region")
	// ErrState: the call is not allowed in the current state of the QP; see [StateError].
	ErrState = errors.New("wrong QP state")
	// ErrQueueFull: the send or receive queue has no free entry (ENOMEM of ibv_post_send).
	ErrQueueFull = errors.New("work queue full")
	// ErrCQOverflow: completions were lost because the CQ was full.
	ErrCQOverflow = errors.New("completion queue overflow")
	// ErrSharedChannel: CQ.Wait needs a CQ with a private completion channel.
	ErrSharedChannel = errors.New("completion channel is shared: use CompChannel.Wait")
)

// OpError reports a failed call: the call, the device and the cause. Err is or wraps one of the
// causes above, an errno, or a typed error of this package. Most callers use errors.Is or
// errors.As.
type OpError struct {
	Op     string // the call, for example "CreateQP"
	Device string // the name of the device, or ""
	Err    error
}

// Error returns "verbs: OP on DEVICE: CAUSE".
func (e *OpError) Error() string {
	if e.Device == "" {
		return "verbs: " + e.Op + ": " + e.Err.Error()
	}
	return "verbs: " + e.Op + " on " + e.Device + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// opError wraps err, or returns nil for nil.
func opError(op, device string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Device: device, Err: cause(err)}
}

// cause removes the OpErrors added by the handles of an inner device, so that the final error names
// only the outer call.
func cause(err error) error {
	for {
		below, ok := err.(*OpError)
		if !ok {
			return err
		}
		err = below.Err
	}
}

// requestError is the reason why a request of a list was not queued.
type requestError struct {
	n   int // its index in the list
	err error
}

// Error returns "request N: CAUSE".
func (e *requestError) Error() string { return fmt.Sprintf("request %d: %v", e.n, e.err) }

// Unwrap returns the cause.
func (e *requestError) Unwrap() error { return e.err }

// requestCause returns the error of a post that queued n requests. An index that err already has,
// from the list of an inner device, is dropped.
func requestCause(n int, err error) error {
	err = cause(err)
	if below, ok := err.(*requestError); ok {
		err = below.err
	}
	if err == ErrClosed {
		return err
	}
	return &requestError{n, err}
}

// LimitError reports a limit and the value that exceeds it. It Is [ErrLimit].
type LimitError struct {
	Name  string // the C name of the limit, for example "max_qp_wr"
	Limit uint64
	Value uint64
}

// Error returns, for example, "max_sge: 9 exceeds the limit 8".
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d exceeds the limit %d", e.Name, e.Value, e.Limit)
}

// Is reports whether target is ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// limit returns a *LimitError if value exceeds limit.
func limit(name string, value, limit int) error {
	if value <= limit {
		return nil
	}
	return &LimitError{Name: name, Limit: uint64(max(limit, 0)), Value: uint64(value)}
}

// StateError reports the state in which a call is not allowed. It Is [ErrState].
type StateError struct {
	State QPState
	Why   string
}

// Error returns, for example, "QP is in state RESET: receives can be posted from INIT on".
func (e *StateError) Error() string { return "QP is in state " + e.State.String() + ": " + e.Why }

// Is reports whether target is ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// invalid returns an error that Is ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// TerminateError describes the Terminate message that ended an iWARP stream (RFC 5040 section 4.8):
// the error and the side that detected it. [QP.Err] and asynchronous events report it on both
// sides.
type TerminateError struct {
	Layer, Type, Code uint8  // as on the wire: layer 0 RDMAP, 1 DDP, 2 MPA
	Header            []byte // the DDP header of the offending message, nil if not quoted
	Remote            bool   // true if the peer detected the error and sent the message
	Text              string // the meaning of the codes
	// Access is the refused memory access, as far as known: in full on the side that detected the
	// error, from the quoted header on the other. It is nil for other errors, or if nothing is
	// known.
	Access *AccessError
}

// Error returns, for example, "terminated by peer: RDMAP remote protection error: invalid STag
// (0/1/00): no memory has key 0x2a00 (64 bytes at 0x1000)".
func (e *TerminateError) Error() string {
	who := "terminated"
	if e.Remote {
		who = "terminated by peer"
	}
	s := fmt.Sprintf("%s: %s (%d/%d/%02x)", who, e.Text, e.Layer, e.Type, e.Code)
	if e.Access != nil {
		s += ": " + e.Access.Error()
	}
	return s
}

// Unwrap returns Access, or nil.
func (e *TerminateError) Unwrap() error {
	if e.Access == nil {
		return nil
	}
	return e.Access
}

// Is reports whether target is a *TerminateError with the same layer, type, code and side.
func (e *TerminateError) Is(target error) bool {
	t, ok := target.(*TerminateError)
	return ok && t.Layer == e.Layer && t.Type == e.Type && t.Code == e.Code && t.Remote == e.Remote
}
