// SPDX-License-Identifier: BSD-3-Clause

package ibverbs

import (
	"sync/atomic"
	"syscall"
)

// NoErrno is the error of a call that failed and did not tell why as its manual page says. It is
// larger than any errno.
const NoErrno syscall.Errno = 4096

// Held is the lock of a queue, 1 while somebody has it. Who gets it stores 0 when the call is over,
// which may be from C.
type Held = atomic.Uint32

// Posted is the result of a post: in the low half how many requests were taken, in the upper half 0
// or the errno that is the reason why not all were.
type Posted uint64

// Broken is set in the upper half of a Posted if it is not known how many requests were taken.
const Broken = 1 << 31

// Refused is the result of a post of which only some requests were taken.
func Refused(taken int, why syscall.Errno) Posted { return Posted(taken) | Posted(why)<<32 }

// PollErrors is set in the result of CQ.Poll if one of the completions is not a success.
const PollErrors = 1 << 30

// What MR.Rereg returns for a region that is as it was, and for one that was changed, but whose new
// memory a fork of the process would copy.
const (
	ReregInput    = -1
	ReregDontFork = -2
)

// Library is libibverbs, or what stands for it.
type Library interface {
	// Devices lists the devices.
	Devices() ([]Device, error)
	// Open opens one. GUID tells devices apart that had the same name at different times.
	Open(name string, guid uint64) (Context, error)
}

// Context is an open device, struct ibv_context. Its methods may be called concurrently.
type Context interface {
	// FDs returns the descriptor to which the library writes its commands, and the one that is
	// readable when there is an event.
	FDs() (commands, events int)
	QueryDevice(*DeviceAttr) error
	QueryDeviceEx(*DeviceAttrEx) error
	QueryPort(port int, a *PortAttr) error
	QueryGID(port, index int, g *GID) error
	QueryPKey(port, index int) (uint16, error) // in host order
	AllocPD() (PD, error)
	CreateChannel() (Channel, error)
	// CreateCQ also returns for how many completions there is room.
	CreateCQ(CQConfig) (cq CQ, room int, err error)
	// Event takes an event, which has been acknowledged. The error is EAGAIN if there is none.
	Event() (Event, error)
	// Gather copies the memory that elements name. There must be room for it.
	Gather(to []byte, from []SGE)
	Close() error
}

// PD is a protection domain.
type PD interface {
	// Handle is the number of the PD in commands to the kernel.
	Handle() uint32
	RegMR(addr uintptr, length int, iova uint64, access uint32) (MR, error)
	RegDmabufMR(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// AllocMW makes a window, of an ibv_mw_type.
	AllocMW(typ int) (MW, error)
	CreateAH(*AHAttr) (AH, error)
	// CreateSRQ also returns what the queue has.
	CreateSRQ(cookie uint64, a SRQAttr) (s SRQ, has SRQAttr, err error)
	// CreateQP also returns what the QP has, and its number.
	CreateQP(QPConfig) (q QP, has QPCap, num uint32, err error)
	Dealloc() error
}

// AH is an address handle.
type AH interface {
	Handle() uint64 // in Ext
	Destroy() error
}

// MR is a region. Its methods are not called concurrently.
type MR interface {
	Handle() uint64 // in Ext
	Keys() Keys     // which Rereg may change
	// Rereg returns what ibv_rereg_mr returns: 0, one of the negative numbers above, or another,
	// for a region that is lost. The error is the errno.
	Rereg(flags int, pd PD, addr uintptr, length int, access uint32) (result int, err error)
	Dereg() error
}

// MW is a window.
type MW interface {
	Handle() uint64 // in Ext
	RKey() uint32   // now: a bind of type 1 changes it
	Dealloc() error
}

// Channel is a completion channel. Event is called by one goroutine at a time.
type Channel interface {
	// FD is readable when there is an event.
	FD() int
	// Event takes an event, which has been acknowledged: the cookie of its CQ. The error is EAGAIN
	// if there is none.
	Event() (cookie uint64, err error)
	Destroy() error
}

// CQConfig is what is asked of a CQ.
type CQConfig struct {
	CQE     int
	Cookie  uint64
	Channel Channel // nil = none
	Vector  int
	// WithInv is the flag by which the device says that a receive has invalidated a key.
	WithInv uint32
}

// CQ is a completion queue. Calls of Poll may overlap.
type CQ interface {
	// Poll returns how many completions it has written, with PollErrors if one of them is not a
	// success, or a negative number, which says nothing but that it has failed. At its end it
	// stores 0 to held, unless that is nil.
	Poll(wcs []WC, held *Held) int
	ReqNotify(solicitedOnly bool) error
	// Resize returns for how many completions there is room then.
	Resize(cqe int) (room int, err error)
	Destroy() error
}

// QPConfig is what is asked of a QP.
type QPConfig struct {
	Cookie         uint64
	SendCQ, RecvCQ CQ
	SRQ            SRQ    // nil = a receive queue of its own
	Type           uint32 // an ibv_qp_type
	SigAll         bool
	Cap            QPCap
	AtomicWrite    bool // it can post Atomic Writes too
}

// QP is a queue pair. Posts to one of its queues do not overlap: the caller holds a lock. At their
// end they store 0 to held, unless that is nil. The lists are the caller's again then; until then
// they may be changed.
type QP interface {
	Send(wrs []Send, sges []SGE, ext []Ext, held *Held) Posted
	Recv(wrs []Recv, sges []SGE, held *Held) Posted
	Modify(a *QPAttr, mask uint32) error
	Query(*QPAttr) error
	// BindMW binds a window of type 1.
	BindMW(id uint64, flags uint8, mw MW, mr MR, addr, length uint64, access uint32) error
	// Mcast attaches the QP to a group, or detaches it.
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
