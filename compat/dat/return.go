// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

// Return is the type of a DAT return code (DAT_RETURN_TYPE), with the numbers of dat_error.h. It is
// an error to compare with: errors.Is(err, dat.QueueEmpty).
type Return uint32

const (
	Success       Return = 0x00000000 // DAT_SUCCESS; a Go call returns nil
	Abort         Return = 0x00010000 // DAT_ABORT: the EVD was freed during the call
	ConnQualInUse Return = 0x00020000 // DAT_CONN_QUAL_IN_USE
	// DAT_INSUFFICIENT_RESOURCES: a device limit, or a full queue of the EP
	InsufficientResources Return = 0x00030000
	InternalError         Return = 0x00040000 // DAT_INTERNAL_ERROR
	InvalidHandle         Return = 0x00050000 // DAT_INVALID_HANDLE: freed, missing, or of another IA
	InvalidParameter      Return = 0x00060000 // DAT_INVALID_PARAMETER
	InvalidState          Return = 0x00070000 // DAT_INVALID_STATE: the subtype says which
	LengthError           Return = 0x00080000 // DAT_LENGTH_ERROR: one memory area is too small for the other
	ModelNotSupported     Return = 0x00090000 // DAT_MODEL_NOT_SUPPORTED: the device lacks the requested feature
	ProviderNotFound      Return = 0x000A0000 // DAT_PROVIDER_NOT_FOUND
	PrivilegesViolation   Return = 0x000B0000 // DAT_PRIVILEGES_VIOLATION
	ProtectionViolation   Return = 0x000C0000 // DAT_PROTECTION_VIOLATION
	QueueEmpty            Return = 0x000D0000 // DAT_QUEUE_EMPTY
	QueueFull             Return = 0x000E0000 // DAT_QUEUE_FULL
	TimeoutExpired        Return = 0x000F0000 // DAT_TIMEOUT_EXPIRED
	InvalidAddress        Return = 0x00120000 // DAT_INVALID_ADDRESS
	InterruptedCall       Return = 0x00130000 // DAT_INTERRUPTED_CALL: the call's context is done
	ConnQualUnavailable   Return = 0x00140000 // DAT_CONN_QUAL_UNAVAILABLE
	NotImplemented        Return = 0x3FFF0000 // DAT_NOT_IMPLEMENTED
)

var returnNames = map[Return]string{
	Success: "DAT_SUCCESS", Abort: "DAT_ABORT", ConnQualInUse: "DAT_CONN_QUAL_IN_USE",
	InsufficientResources: "DAT_INSUFFICIENT_RESOURCES", InternalError: "DAT_INTERNAL_ERROR",
	InvalidHandle:    "DAT_INVALID_HANDLE",
	InvalidParameter: "DAT_INVALID_PARAMETER", InvalidState: "DAT_INVALID_STATE", LengthError: "DAT_LENGTH_ERROR",
	ModelNotSupported: "DAT_MODEL_NOT_SUPPORTED", ProviderNotFound: "DAT_PROVIDER_NOT_FOUND",
	PrivilegesViolation: "DAT_PRIVILEGES_VIOLATION", ProtectionViolation: "DAT_PROTECTION_VIOLATION",
	QueueEmpty: "DAT_QUEUE_EMPTY", QueueFull: "DAT_QUEUE_FULL", TimeoutExpired: "DAT_TIMEOUT_EXPIRED",
	InvalidAddress: "DAT_INVALID_ADDRESS", InterruptedCall: "DAT_INTERRUPTED_CALL",
	ConnQualUnavailable: "DAT_CONN_QUAL_UNAVAILABLE",
	NotImplemented:      "DAT_NOT_IMPLEMENTED",
}

// Error returns the C name.
func (r Return) Error() string {
	if s, ok := returnNames[r]; ok {
		return s
	}
	return fmt.Sprintf("DAT return type %#x", uint32(r))
}

// Subtype is the subtype of a return code (DAT_RETURN_SUBTYPE), with the numbers of dat_error.h.
// Like [Return], it is an error to compare with.
type Subtype uint16

const (
	NoSubtype Subtype = 0 // DAT_NO_SUBTYPE

	ResourceMemory       Subtype = 2  // DAT_RESOURCE_MEMORY
	ResourceDevice       Subtype = 3  // DAT_RESOURCE_DEVICE
	ResourceTEP          Subtype = 4  // DAT_RESOURCE_TEP: a queue pair, or room in its queues
	ResourceTEVD         Subtype = 5  // DAT_RESOURCE_TEVD: a completion queue
	ResourcePD           Subtype = 6  // DAT_RESOURCE_PROTECTION_DOMAIN
	ResourceMemoryRegion Subtype = 7  // DAT_RESOURCE_MEMORY_REGION
	ResourceCredits      Subtype = 9  // DAT_RESOURCE_CREDITS
	InvalidHandleIA      Subtype = 11 // DAT_INVALID_HANDLE_IA

	InvalidHandleEP         Subtype = 12 // DAT_INVALID_HANDLE_EP
	InvalidHandleLMR        Subtype = 13 // DAT_INVALID_HANDLE_LMR
	InvalidHandlePZ         Subtype = 15 // DAT_INVALID_HANDLE_PZ
	InvalidHandlePSP        Subtype = 16 // DAT_INVALID_HANDLE_PSP
	InvalidHandleCR         Subtype = 18 // DAT_INVALID_HANDLE_CR: also one that was answered
	InvalidHandleEVDCR      Subtype = 20 // DAT_INVALID_HANDLE_EVD_CR: the EVD accepts no connection requests
	InvalidHandleEVDRequest Subtype = 21 // DAT_INVALID_HANDLE_EVD_REQUEST
	InvalidHandleEVDRecv    Subtype = 22 // DAT_INVALID_HANDLE_EVD_RECV
	InvalidHandleEVDConn    Subtype = 23 // DAT_INVALID_HANDLE_EVD_CONN
	InvalidHandleEVDAsync   Subtype = 24 // DAT_INVALID_HANDLE_EVD_ASYNC
	InvalidHandle1          Subtype = 27 // DAT_INVALID_HANDLE1: the receiver of the call

	InvalidArg1 Subtype = 37 // DAT_INVALID_ARG1: arguments are numbered as in the C function
	InvalidArg2 Subtype = 38 // DAT_INVALID_ARG2
	InvalidArg3 Subtype = 39 // DAT_INVALID_ARG3
	InvalidArg4 Subtype = 40 // DAT_INVALID_ARG4
	InvalidArg5 Subtype = 41 // DAT_INVALID_ARG5
	InvalidArg6 Subtype = 42 // DAT_INVALID_ARG6
	InvalidArg7 Subtype = 43 // DAT_INVALID_ARG7
	InvalidArg8 Subtype = 44 // DAT_INVALID_ARG8

	InvalidStateEPUnconnected     Subtype = 47 // DAT_INVALID_STATE_EP_UNCONNECTED
	InvalidStateEPActConnPending  Subtype = 48 // DAT_INVALID_STATE_EP_ACTCONNPENDING
	InvalidStateEPPassConnPending Subtype = 49 // DAT_INVALID_STATE_EP_PASSCONNPENDING
	InvalidStateEPTentConnPending Subtype = 50 // DAT_INVALID_STATE_EP_TENTCONNPENDING
	InvalidStateEPConnected       Subtype = 51 // DAT_INVALID_STATE_EP_CONNECTED
	InvalidStateEPDisconnected    Subtype = 52 // DAT_INVALID_STATE_EP_DISCONNECTED
	InvalidStateEPReserved        Subtype = 53 // DAT_INVALID_STATE_EP_RESERVED
	InvalidStateEPComplPending    Subtype = 54 // DAT_INVALID_STATE_EP_COMPLPENDING
	InvalidStateEPDiscPending     Subtype = 55 // DAT_INVALID_STATE_EP_DISCPENDING

	InvalidStateEVDUnwaitable      Subtype = 73 // DAT_INVALID_STATE_EVD_UNWAITABLE
	InvalidStateEVDInUse           Subtype = 74 // DAT_INVALID_STATE_EVD_IN_USE
	InvalidStateEVDConfigSolicited Subtype = 76 // DAT_INVALID_STATE_EVD_CONFIG_SOLICITED
	InvalidStateEVDWaiter          Subtype = 78 // DAT_INVALID_STATE_EVD_WAITER: another goroutine is in Wait
	InvalidStateEVDAsync           Subtype = 79 // DAT_INVALID_STATE_EVD_ASYNC
	InvalidStateIAInUse            Subtype = 80 // DAT_INVALID_STATE_IA_IN_USE
	InvalidStateLMRInUse           Subtype = 81 // DAT_INVALID_STATE_LMR_IN_USE
	InvalidStatePZInUse            Subtype = 83 // DAT_INVALID_STATE_PZ_IN_USE

	InvalidAddressUnsupported Subtype = 97  // DAT_INVALID_ADDRESS_UNSUPPORTED: multicast
	InvalidAddressMalformed   Subtype = 99  // DAT_INVALID_ADDRESS_MALFORMED
	NameNotRegistered         Subtype = 100 // DAT_NAME_NOT_REGISTERED
)

var subtypeNames = map[Subtype]string{
	NoSubtype: "DAT_NO_SUBTYPE", ResourceMemory: "DAT_RESOURCE_MEMORY", ResourceDevice: "DAT_RESOURCE_DEVICE",
	ResourceTEP: "DAT_RESOURCE_TEP", ResourceTEVD: "DAT_RESOURCE_TEVD", ResourcePD: "DAT_RESOURCE_PROTECTION_DOMAIN",
	ResourceMemoryRegion: "DAT_RESOURCE_MEMORY_REGION", ResourceCredits: "DAT_RESOURCE_CREDITS",
	InvalidHandleIA: "DAT_INVALID_HANDLE_IA", InvalidHandleEP: "DAT_INVALID_HANDLE_EP",
	InvalidHandleLMR: "DAT_INVALID_HANDLE_LMR",
	InvalidHandlePZ:  "DAT_INVALID_HANDLE_PZ", InvalidHandlePSP: "DAT_INVALID_HANDLE_PSP",
	InvalidHandleCR:    "DAT_INVALID_HANDLE_CR",
	InvalidHandleEVDCR: "DAT_INVALID_HANDLE_EVD_CR", InvalidHandleEVDRequest: "DAT_INVALID_HANDLE_EVD_REQUEST",
	InvalidHandleEVDRecv: "DAT_INVALID_HANDLE_EVD_RECV", InvalidHandleEVDConn: "DAT_INVALID_HANDLE_EVD_CONN",
	InvalidHandleEVDAsync: "DAT_INVALID_HANDLE_EVD_ASYNC", InvalidHandle1: "DAT_INVALID_HANDLE1",
	InvalidArg1: "DAT_INVALID_ARG1", InvalidArg2: "DAT_INVALID_ARG2", InvalidArg3: "DAT_INVALID_ARG3",
	InvalidArg4: "DAT_INVALID_ARG4",
	InvalidArg5: "DAT_INVALID_ARG5", InvalidArg6: "DAT_INVALID_ARG6", InvalidArg7: "DAT_INVALID_ARG7",
	InvalidArg8:                    "DAT_INVALID_ARG8",
	InvalidStateEPUnconnected:      "DAT_INVALID_STATE_EP_UNCONNECTED",
	InvalidStateEPActConnPending:   "DAT_INVALID_STATE_EP_ACTCONNPENDING",
	InvalidStateEPPassConnPending:  "DAT_INVALID_STATE_EP_PASSCONNPENDING",
	InvalidStateEPTentConnPending:  "DAT_INVALID_STATE_EP_TENTCONNPENDING",
	InvalidStateEPConnected:        "DAT_INVALID_STATE_EP_CONNECTED",
	InvalidStateEPDisconnected:     "DAT_INVALID_STATE_EP_DISCONNECTED",
	InvalidStateEPReserved:         "DAT_INVALID_STATE_EP_RESERVED",
	InvalidStateEPComplPending:     "DAT_INVALID_STATE_EP_COMPLPENDING",
	InvalidStateEPDiscPending:      "DAT_INVALID_STATE_EP_DISCPENDING",
	InvalidStateEVDUnwaitable:      "DAT_INVALID_STATE_EVD_UNWAITABLE",
	InvalidStateEVDInUse:           "DAT_INVALID_STATE_EVD_IN_USE",
	InvalidStateEVDConfigSolicited: "DAT_INVALID_STATE_EVD_CONFIG_SOLICITED",
	InvalidStateEVDWaiter:          "DAT_INVALID_STATE_EVD_WAITER", InvalidStateEVDAsync: "DAT_INVALID_STATE_EVD_ASYNC",
	InvalidStateIAInUse: "DAT_INVALID_STATE_IA_IN_USE", InvalidStateLMRInUse: "DAT_INVALID_STATE_LMR_IN_USE",
	InvalidStatePZInUse: "DAT_INVALID_STATE_PZ_IN_USE", InvalidAddressUnsupported: "DAT_INVALID_ADDRESS_UNSUPPORTED",
	InvalidAddressMalformed: "DAT_INVALID_ADDRESS_MALFORMED", NameNotRegistered: "DAT_NAME_NOT_REGISTERED",
}

// Error returns the C name.
func (s Subtype) Error() string {
	if name, ok := subtypeNames[s]; ok {
		return name
	}
	return fmt.Sprintf("DAT return subtype %d", uint16(s))
}

// classError is DAT_CLASS_ERROR.
const classError = 0x80000000

// Error is the error of a call: its return code, and the underlying error if there is one. It Is
// its [Return] and its [Subtype].
type Error struct {
	Call    string // for example "EP.PostSend"
	Type    Return
	Subtype Subtype
	Err     error // the underlying error, for example of package verbs; may be nil
}

// Code returns the DAT_RETURN: class, type and subtype.
func (e *Error) Code() uint32 { return classError | uint32(e.Type) | uint32(e.Subtype) }

// Error returns, for example, "dat: EP.PostSend: DAT_INVALID_STATE
// DAT_INVALID_STATE_EP_UNCONNECTED".
func (e *Error) Error() string {
	s := "dat: " + e.Call + ": " + e.Type.Error()
	if e.Subtype != NoSubtype {
		s += " " + e.Subtype.Error()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is the type or the subtype.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Return:
		return t == e.Type
	case Subtype:
		return t == e.Subtype && t != NoSubtype
	}
	return false
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

func fault(call string, t Return, s Subtype, err error) error {
	return &Error{Call: call, Type: t, Subtype: s, Err: err}
}

// argument returns the error for an invalid argument; n is its subtype.
func argument(call string, n Subtype, format string, args ...any) error {
	return fault(call, InvalidParameter, n, fmt.Errorf(format, args...))
}

// below converts the error of an underlying object; full is the subtype if a limit is the reason.
func below(call string, full Subtype, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, verbs.ErrLimit), errors.Is(err, verbs.ErrQueueFull):
		return fault(call, InsufficientResources, full, err)
	case errors.Is(err, verbs.ErrNotSupported):
		return fault(call, ModelNotSupported, NoSubtype, err)
	case errors.Is(err, verbs.ErrNoDevice):
		return fault(call, ProviderNotFound, NameNotRegistered, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded):
		return fault(call, InterruptedCall, NoSubtype, err)
	case errors.Is(err, verbs.ErrInvalid):
		return fault(call, InvalidParameter, NoSubtype, err)
	}
	return fault(call, InternalError, NoSubtype, err)
}
