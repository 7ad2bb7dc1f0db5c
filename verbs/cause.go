// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// Cause returns an error that explains why a request of the QP failed, or nil if it succeeded. The
// error is a *[RequestError]:
//
//	if err := qp.Cause(&wc); err != nil {
//		// RDMA_WRITE 7 of QP 18: local protection error: element 1:
//		// no memory has key 0x2a00 (64 bytes at 0x1000)
//		log.Print(err)
//	}
//
// It Is the status of the completion. On the user-space RNIC it wraps an *[AccessError] if a memory
// access was refused, here or at the peer, and the *[TerminateError] if the peer detected the
// error. Kernel drivers report only the status and VendorErr. On rxe and siw the opcode is known
// too. On rxe so is the *[AccessError] of a receive that may not access local memory, and on Linux
// 6.1 that of a send; Linux 6.12 flushes such sends without reporting which one was at fault. A
// flushed request has no cause of its own: the error wraps what ended the QP, as returned by
// [QP.Err].
//
// Nothing is retained for successful requests, so Cause costs nothing until it is called. It may be
// called after Close, but not after the QP returns to RESET.
func (q *QP) Cause(wc *WC) error {
	if wc == nil || wc.Status == WCSuccess {
		return nil
	}
	e := &RequestError{QPNum: wc.QPNum, ID: wc.ID, Status: wc.Status, VendorErr: wc.VendorErr}
	if wc.QPNum != q.num {
		e.Reason = invalid("the completion is of QP %d, not of QP %d", wc.QPNum, q.num)
		return e
	}
	if x, ok := Ability[ProviderQPExplainer](q.p); ok {
		posted := *wc
		posted.ID ^= wc.posted
		e.Opcode, e.Known, e.Reason = x.Explain(&posted)
	}
	if e.Reason == nil {
		if err := q.p.Err(); err != error(wc.Status) {
			e.Reason = err
		}
	}
	return e
}

// RequestError reports why a request failed. It Is its Status, and wraps its Reason.
type RequestError struct {
	QPNum     uint32   // of the QP
	ID        uint64   // of the request (wr_id)
	Status    WCStatus // of its completion
	VendorErr uint32   // of its completion (vendor_err); the meaning depends on the driver
	Opcode    WCOpcode // the opcode that a successful completion would have; valid if Known
	Known     bool     // Opcode is known; false for flushed requests
	Reason    error    // nil if the device reported only the status
}

// Error returns, for example, "RDMA_WRITE 7 of QP 18: remote access error: terminated by peer:
// ...".
func (e *RequestError) Error() string {
	what := "request"
	if e.Known {
		what = e.Opcode.String()
	}
	s := fmt.Sprintf("%s %d of QP %d: %v", what, e.ID, e.QPNum, e.Status)
	if e.VendorErr != 0 {
		s += fmt.Sprintf(" (vendor_err %#x)", e.VendorErr)
	}
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	return s
}

// Unwrap returns the status and the reason.
func (e *RequestError) Unwrap() []error {
	if e.Reason == nil {
		return []error{e.Status}
	}
	return []error{e.Status, e.Reason}
}

// AccessFault is the reason why a memory access was refused.
type AccessFault uint8

const (
	// no memory has the key: it was never assigned, or it was closed or invalidated
	AccessBadKey       AccessFault = iota
	AccessForeign                  // the memory belongs to another PD, or the window to another QP
	AccessMissingRight             // the memory lacks the access right
	AccessQPRight                  // the QP does not grant the peer this access (qp_access_flags)
	AccessBounds                   // the range is not inside the memory
	AccessWraps                    // address plus length overflows 64 bits
	// the key cannot be invalidated: it belongs to a region, or to a window of another QP
	AccessNoInvalidate
	AccessOfWindow   // the key belongs to a window, which only peers can use
	AccessMisaligned // the address of an atomic is not a multiple of 8
)

var accessFaults = []string{"unknown key", "foreign memory", "missing right", "missing right of the QP",
	"out of bounds", "address wraps around", "key cannot be invalidated", "key of a window", "misaligned address"}

// String returns, for example, "unknown key".
func (f AccessFault) String() string { return enumText(int(f), accessFaults, "AccessFault") }

// AccessError describes a refused memory access: the key, the address, the missing right, and the
// SGE of the request. Unknown fields are 0.
type AccessError struct {
	Fault   AccessFault
	Key     uint32      // the local key of an SGE, or the remote key (STag) that the requester used
	Addr    uint64      // of the first byte
	Length  uint64      // bytes; 0 = unknown
	Right   AccessFlags // what the access needs; 0 = only a valid key, or unknown
	Element int         // index in the request's SGL; -1 = the memory is on the side of the requester's peer
}

// Error returns, for example, "element 1: the memory of key 0x2a00 lacks LOCAL_WRITE (64 bytes at
// 0x1000)".
func (e *AccessError) Error() string {
	var s string
	right := "a right"
	if e.Right != 0 {
		right = e.Right.String()
	}
	switch e.Fault {
	case AccessBadKey:
		s = fmt.Sprintf("no memory has key %#x", e.Key)
	case AccessForeign:
		s = fmt.Sprintf("the memory of key %#x is of another PD, or the window of another QP", e.Key)
	case AccessMissingRight:
		s = fmt.Sprintf("the memory of key %#x lacks %s", e.Key, right)
	case AccessQPRight:
		s = fmt.Sprintf("the QP lacks %s, for the memory of key %#x", right, e.Key)
	case AccessBounds:
		s = fmt.Sprintf("the memory of key %#x does not contain the range", e.Key)
	case AccessWraps:
		s = fmt.Sprintf("the range with key %#x wraps around", e.Key)
	case AccessNoInvalidate:
		s = fmt.Sprintf("key %#x cannot be invalidated", e.Key)
	case AccessOfWindow:
		s = fmt.Sprintf("key %#x is that of a window, which is for peers only", e.Key)
	case AccessMisaligned:
		s = fmt.Sprintf("an atomic needs an address that is a multiple of 8, in the memory of key %#x", e.Key)
	default:
		s = fmt.Sprintf("key %#x: %v", e.Key, e.Fault)
	}
	switch {
	case e.Length != 0:
		s += fmt.Sprintf(" (%d bytes at %#x)", e.Length, e.Addr)
	case e.Addr != 0:
		s += fmt.Sprintf(" (at %#x)", e.Addr)
	}
	if e.Element >= 0 {
		s = fmt.Sprintf("element %d: ", e.Element) + s
	}
	return s
}

// Is reports whether target is the fault's sentinel: ErrBounds or ErrForeign.
func (e *AccessError) Is(target error) bool {
	switch e.Fault {
	case AccessBounds, AccessWraps:
		return target == ErrBounds
	case AccessForeign:
		return target == ErrForeign
	}
	return false
}

// EndError reports that this side ended the connection of a QP. It Is [ErrClosed]. [QP.Err] returns
// it.
type EndError struct {
	Why string // for example "the QP was moved to ERR"
}

// Error returns, for example, "ended by this side: the QP was moved to ERR".
func (e *EndError) Error() string { return "ended by this side: " + e.Why }

// Unwrap returns ErrClosed.
func (e *EndError) Unwrap() error { return ErrClosed }

// The reasons shared by all providers.
var (
	EndModify     error = &EndError{"the QP was moved to ERR"}
	EndClose      error = &EndError{"the QP was closed"}
	EndDisconnect error = &EndError{"the connection was closed"}
)
