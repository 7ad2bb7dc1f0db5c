// SPDX-License-Identifier: BSD-3-Clause

package ibverbs

import (
	"sync/atomic"
	"syscall"
)

// NoErrno is the error of a call that failed without reporting an errno as its man page promises.
// It is larger than any errno.
const NoErrno syscall.Errno = 4096

// Held is the lock word of a queue, 1 while the lock is held. The callee stores 0 when the call is
// done, possibly from C.
type Held = atomic.Uint32

// Posted is the result of a post: the lower half is the number of requests accepted; the upper half
// is 0, or the errno that explains why the rest were not.
type Posted uint64

// Broken is set in the upper half of a Posted if the number of accepted requests is unknown.
const Broken = 1 << 31

// Refused returns the result of a post that accepted only the first taken requests.
func Refused(taken int, why syscall.Errno) Posted { return Posted(taken) | Posted(why)<<32 }

// PollErrors is set in the result of CQ.Poll if at least one completion has a status other than
// success.
const PollErrors = 1 << 30

// Results of MR.Rereg. After ReregInput the region is unchanged. After ReregDontFork it was
// changed, but the new memory could not be excluded from fork.
const (
	ReregInput    = -1
	ReregDontFork = -2
)

// Library is libibverbs or a replacement for it.
type Library interface {
	// Devices lists the devices.
	Devices() ([]Device, error)
	// Open opens a device. The GUID distinguishes devices that had the same name at different
	// times.
	Open(name string, guid uint64) (Context, error)
}

// Context is an open device, struct ibv_context. Its methods may be called concurrently.
type Context interface {
	// FDs returns the file descriptor that the library writes commands to, and the one that becomes
	// readable when an asynchronous event arrives.
	FDs() (commands, events int)
	QueryDevice(*DeviceAttr) error
	QueryDeviceEx(*DeviceAttrEx) error
	QueryPort(port int, a *PortAttr) error
	QueryGID(port, index int, g *GID) error
	QueryPKey(port, index int) (uint16, error) // in host order
	AllocPD() (PD, error)
	CreateChannel() (Channel, error)
	// CreateCQ also returns the actual capacity, in completions.
	CreateCQ(CQConfig) (cq CQ, room int, err error)
	// Event returns the next event, already acknowledged, or EAGAIN if there is none.
	Event() (Event, error)
	// Gather copies the memory described by from into to, which must be large enough.
	Gather(to []byte, from []SGE)
	Close() error
}

// PD is a protection domain.
type PD interface {
	// Handle returns the number of the PD in commands to the kernel.
	Handle() uint32
	RegMR(addr uintptr, length int, iova uint64, access uint32) (MR, error)
	RegDmabufMR(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// AllocMW allocates a window; typ is an ibv_mw_type.
	AllocMW(typ int) (MW, error)
	CreateAH(*AHAttr) (AH, error)
	// CreateSRQ also returns the actual attributes.
	CreateSRQ(cookie uint64, a SRQAttr) (s SRQ, has SRQAttr, err error)
	// CreateQP also returns the actual capacities and the QP number.
	CreateQP(QPConfig) (q QP, has QPCap, num uint32, err error)
	Dealloc() error
}

// AH is an address handle.
type AH interface {
	Handle() uint64 // number of the object in Ext
	Destroy() error
}

// MR is a memory region. Its methods are not called concurrently.
type MR interface {
	Handle() uint64 // number of the object in Ext
	Keys() Keys     // may change with Rereg
	// Rereg returns the result of ibv_rereg_mr: 0, one of the Rereg constants, or another negative
	// number if the region is lost. The error is the errno.
	Rereg(flags int, pd PD, addr uintptr, length int, access uint32) (result int, err error)
	Dereg() error
}

// MW is a memory window.
type MW interface {
	Handle() uint64 // number of the object in Ext
	RKey() uint32   // the current key: binding a type 1 window changes it
	Dealloc() error
}

// Channel is a completion channel. Calls of Event do not overlap.
type Channel interface {
	// FD returns the file descriptor that is readable while an event is pending.
	FD() int
	// Event returns the cookie of the CQ of the next event, already acknowledged, or EAGAIN if
	// there is none.
	Event() (cookie uint64, err error)
	Destroy() error
}

// CQConfig configures a CQ.
type CQConfig struct {
	CQE     int
	Cookie  uint64
	Channel Channel // nil = none
	Vector  int
	// WithInv is the flag with which the device marks a receive that invalidated a key.
	WithInv uint32
}

// CQ is a completion queue. Poll may be called concurrently.
type CQ interface {
	// Poll returns the number of completions written to wcs, with PollErrors set if any of them is
	// not a success. A negative result means only that the poll failed. Before Poll returns, it
	// stores 0 to held unless held is nil.
	Poll(wcs []WC, held *Held) int
	ReqNotify(solicitedOnly bool) error
	// Resize returns the new capacity, in completions.
	Resize(cqe int) (room int, err error)
	Destroy() error
}

// QPConfig configures a QP.
type QPConfig struct {
	Cookie         uint64
	SendCQ, RecvCQ CQ
	SRQ            SRQ    // nil = a receive queue of its own
	Type           uint32 // an ibv_qp_type
	SigAll         bool
	Cap            QPCap
	AtomicWrite    bool // the QP must also support Atomic Writes
}

// QP is a queue pair. Posts to the same queue do not overlap: the caller holds a lock. Before it
// returns, a post stores 0 to held unless held is nil. From then on the lists belong to the caller
// again; until then the post may modify them.
type QP interface {
	Send(wrs []Send, sges []SGE, ext []Ext, held *Held) Posted
	Recv(wrs []Recv, sges []SGE, held *Held) Posted
	Modify(a *QPAttr, mask uint32) error
	Query(*QPAttr) error
	// BindMW binds a type 1 window.
	BindMW(id uint64, flags uint8, mw MW, mr MR, addr, length uint64, access uint32) error
	// Mcast attaches the QP to a multicast group, or detaches it.
	Mcast(gid [16]byte, lid uint16, attach bool) error
	Destroy() error
}

// SRQ is a shared receive queue. Posts do not overlap.
type SRQ interface {
	Recv(wrs []Recv, sges []SGE) Posted
	Modify(a SRQAttr, mask uint32) error
	Query() (SRQAttr, error)
	Destroy() error
}
