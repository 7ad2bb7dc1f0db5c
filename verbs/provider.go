// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"time"
)

// The Provider interfaces connect the handles of this package to their providers. Programs that use
// RDMA do not need them. A provider implements them and passes a ProviderDevice to [Register] or
// [NewDevice].
//
// The handles guarantee:
//   - Once the closing call of an object begins, no other call on it is in progress or follows. The
//     exception is Close of channels and contexts: it is called while waits are in progress, and
//     must unblock them.
//   - Children are closed before their parents.
//   - Arguments are not nil and belong to the same context. Opcodes are in the context's Ops.
//     Numbers of SGEs and inline bytes are within the QP's capacities, and sizes within the
//     DeviceAttr. The numbers of objects (max_qp and so on) are not checked: the provider checks
//     them and returns a [LimitError].
//
// A provider guarantees:
//   - It returns plain causes, which the handles wrap in [OpError].
//   - It retains no slice argument after the call returns.
//   - Posting and polling never block.
//   - It rejects objects of other providers, which a device that wraps it could pass by mistake;
//     see [Own].
//
// Devices that wrap other devices follow the rules in provider_wrap.go.

// ProviderDevice is a device that can be opened.
type ProviderDevice interface {
	// Info describes the device without opening it.
	Info() DeviceInfo
	// Open opens a context, whose handle is owner.
	Open(owner *Context) (ProviderContext, error)
}

// ProviderContext is an open device.
type ProviderContext interface {
	QueryDevice() (DeviceAttr, error)
	QueryPort(port int) (PortAttr, error)
	// Ops returns the operations that the device has. The set does not change.
	Ops() OpSet
	AllocPD() (ProviderPD, error)
	CreateCompChannel() (ProviderCompChannel, error)
	// CreateCQ creates a CQ of at least cqe entries whose events go to ch. vector is the completion
	// vector, less than NumCompVectors.
	CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error)
	// WaitEvent waits for the next asynchronous event. It returns ctx.Err() when ctx is done, and
	// ErrClosed when the context is closed.
	WaitEvent(ctx context.Context) (AsyncEvent, error)
	// Close unblocks every WaitEvent and releases the context.
	Close() error
}

// ProviderPD is a protection domain.
type ProviderPD interface {
	// RegMR registers mem at address iova. The handle keeps mem in place.
	RegMR(mem []byte, iova uint64, access AccessFlags) (ProviderMR, error)
	AllocMW(t MWType) (ProviderMW, error)
	// CreateQP creates a QP and returns its actual capacities, at least as large as requested.
	CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error)
	Dealloc() error
}

// ProviderMR is a registered region. Once Dereg returns without error, neither local nor remote
// requests access the memory.
type ProviderMR interface {
	LKey() uint32
	RKey() uint32
	Dereg() error
}

// ProviderMW is a memory window.
type ProviderMW interface {
	// RKey returns the key from the allocation. A type 2 window that was reallocated when its QP
	// was destroyed returns the key of the latest allocation. The handle tracks the keys of binds.
	RKey() uint32
	Dealloc() error
}

// ProviderCompChannel delivers completion events.
type ProviderCompChannel interface {
	// Wait returns the CQ of the next event, ctx.Err() when ctx is done, or ErrClosed when the
	// channel is closed.
	Wait(ctx context.Context) (*CQ, error)
	// Close unblocks every Wait.
	Close() error
}

// ProviderCQ is a completion queue.
type ProviderCQ interface {
	// Poll moves completions into wcs, oldest first, and returns their number.
	Poll(wcs []WC) (int, error)
	// ReqNotify arms the CQ: the next completion (if solicitedOnly, the next solicited or failed
	// one) sends one event.
	ReqNotify(solicitedOnly bool) error
	CQE() int
	Destroy() error
}

// ProviderCQDriver is a ProviderCQ whose device can do its work in the polling goroutine, which
// saves waking another goroutine. It is optional.
type ProviderCQDriver interface {
	ProviderCQ
	// Drive does the device's pending work for the CQ, without waiting.
	Drive()
	// Sleep arms the CQ as ReqNotify does, and waits until there may be a completion. The device
	// may use the goroutine for its work meanwhile. Sleep returns ctx.Err() when ctx is done, and
	// ErrClosed when the CQ's channel is closed. It is not called concurrently, and only on CQs
	// with a private channel.
	Sleep(ctx context.Context, solicitedOnly bool) error
	// Spin returns how long CQ.Wait should drive and poll before it sleeps.
	Spin() time.Duration
}

// ProviderQPConfig is a [QPConfig] with defaults filled in and handles replaced by the provider's
// objects.
type ProviderQPConfig struct {
	SendCQ, RecvCQ ProviderCQ
	SRQ            ProviderSRQ // nil = the QP has its own receive queue
	Type           QPType
	Cap            QPCap
	SigAll         bool
	SendOps        OpSet // a subset of the context's operations, see [QPConfig]
}

// ProviderQP is a queue pair.
type ProviderQP interface {
	Num() uint32
	// PostSend queues wrs in order and returns the number queued. If that is less than len(wrs),
	// the error is the reason.
	PostSend(wrs []SendWR) (int, error)
	PostRecv(wrs []RecvWR) (int, error)
	Modify(attr QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// Err returns the reason why the QP entered the error state, or nil.
	Err() error
	// Drain waits until the completions of all requests are in the CQs. The QP is in the error
	// state.
	Drain(ctx context.Context) error
	// Destroy flushes outstanding requests into the CQs. Once it returns, the device no longer
	// accesses their memory.
	Destroy() error
}
