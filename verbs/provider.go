// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"time"
)

// The Provider interfaces are between the handles of this package and their providers. Programs
// that use RDMA do not need them. A provider implements them and passes a ProviderDevice to
// [Register] or [NewDevice].
//
// The handles guarantee to a provider:
//   - After the closing call of an object has begun, there is no other call on it. The exception is
//     Close of channels and contexts: it comes while waits are in progress, and must end them.
//   - Children are closed before their parents.
//   - Arguments are not nil and belong to the same context. Opcodes are in the set that Ops of the
//     context returns. Counts of SGEs and inline bytes are within the QP's caps, and sizes within
//     the DeviceAttr. Only the number of objects (max_qp and so on) is not checked: the provider
//     checks it and returns a [LimitError].
//
// A provider guarantees:
//   - It returns plain causes, which the handles wrap in [OpError].
//   - It keeps no slice that it was passed after the call returns.
//   - Posting and polling never block.
//   - It refuses an object of another provider, which a device that wraps it could pass by mistake;
//     see [Own].
//
// provider_wrap.go has the rules for devices that wrap other devices.

// ProviderDevice is a device that can be opened.
type ProviderDevice interface {
	// Info describes the device without opening it.
	Info() DeviceInfo
	// Open makes a context. Its handle is owner.
	Open(owner *Context) (ProviderContext, error)
}

// ProviderContext is an open device.
type ProviderContext interface {
	QueryDevice() (DeviceAttr, error)
	QueryPort(port int) (PortAttr, error)
	// Ops is the set of operations that the device has natively. It does not change.
	Ops() OpSet
	AllocPD() (ProviderPD, error)
	CreateCompChannel() (ProviderCompChannel, error)
	// CreateCQ makes a CQ of at least cqe entries whose events go to ch. The device interrupts on
	// the completion vector, which is below NumCompVectors of its attributes.
	CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error)
	// WaitEvent waits for the next asynchronous event. It returns ctx.Err() when ctx is done and
	// ErrClosed when the context is closed.
	WaitEvent(ctx context.Context) (AsyncEvent, error)
	// Close ends every WaitEvent and releases the context.
	Close() error
}

// ProviderPD is a protection domain.
type ProviderPD interface {
	// RegMR registers mem, which the handle keeps in place, at address iova.
	RegMR(mem []byte, iova uint64, access AccessFlags) (ProviderMR, error)
	AllocMW(t MWType) (ProviderMW, error)
	// CreateQP makes a QP; the returned caps are at least those asked for.
	CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error)
	Dealloc() error
}

// ProviderMR is a registered region. Dereg returns when no remote or local access touches the
// memory any more.
type ProviderMR interface {
	LKey() uint32
	RKey() uint32
	Dereg() error
}

// ProviderMW is a memory window.
type ProviderMW interface {
	// RKey is the key given at allocation, the last one for a window of type 2 that was made anew
	// when its QP was destroyed. The handle follows the keys of binds.
	RKey() uint32
	Dealloc() error
}

// ProviderCompChannel delivers completion events.
type ProviderCompChannel interface {
	// Wait returns the CQ of the next event, ctx.Err() when ctx is done, ErrClosed when the channel
	// is closed.
	Wait(ctx context.Context) (*CQ, error)
	// Close ends every Wait.
	Close() error
}

// ProviderCQ is a completion queue.
type ProviderCQ interface {
	// Poll moves completions into wcs, oldest first, and returns their number.
	Poll(wcs []WC) (int, error)
	// ReqNotify arms the CQ: the next completion (the next solicited or failed one if
	// solicitedOnly) sends one event.
	ReqNotify(solicitedOnly bool) error
	CQE() int
	Destroy() error
}

// ProviderCQDriver is a ProviderCQ of a device that can do its work in the polling goroutine, which
// saves a wake-up by another goroutine. It is optional.
type ProviderCQDriver interface {
	ProviderCQ
	// Drive does the pending work of the device for the CQ, without waiting.
	Drive()
	// Sleep arms the CQ as ReqNotify does, and waits until it may have a completion. The device may
	// use the goroutine for its work during the wait. It returns ctx.Err() when ctx is done, and
	// ErrClosed when the CQ's channel is closed. It is called by one goroutine at a time, on CQs
	// that have a channel of their own.
	Sleep(ctx context.Context, solicitedOnly bool) error
	// Spin is the time for which CQ.Wait should drive and poll before it sleeps.
	Spin() time.Duration
}

// ProviderQPConfig is a [QPConfig] with defaults filled in and handles replaced by the provider's
// objects.
type ProviderQPConfig struct {
	SendCQ, RecvCQ ProviderCQ
	SRQ            ProviderSRQ // nil = a receive queue of its own
	Type           QPType
	Cap            QPCap
	SigAll         bool
	SendOps        OpSet // a subset of the context's operations, see [QPConfig]
}

// ProviderQP is a queue pair.
type ProviderQP interface {
	Num() uint32
	// PostSend queues wrs in order and returns the number that it took. If it did not take all, the
	// error is the reason.
	PostSend(wrs []SendWR) (int, error)
	PostRecv(wrs []RecvWR) (int, error)
	Modify(attr QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// Err is the reason why the QP is in the error state, nil before.
	Err() error
	// Drain waits until a QP in the error state has put the completion of every request into its
	// CQs.
	Drain(ctx context.Context) error
	// Destroy returns when the device accesses none of the QP's memory any more. Outstanding
	// requests are flushed into the CQs first.
	Destroy() error
}
