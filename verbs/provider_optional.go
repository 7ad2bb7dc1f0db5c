// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The interfaces in this file are optional. A provider's object implements those that its device
// supports; without one, the corresponding call of the handle fails with [ErrNotSupported]. A
// provider that supports one only on some of its devices returns an error that Is ErrNotSupported
// on the others. [Ability] looks these interfaces up, so an object that wraps another one also has
// those of the inner object.

// ProviderKernelDevice is a kernel device, used through libibverbs. librdmacm establishes its
// connections.
type ProviderKernelDevice interface {
	ProviderDevice
	// KernelName returns the kernel's name of the device, for example "mlx5_0".
	KernelName() string
}

// ProviderDriverNamer is a ProviderContext of a device with more abilities than others of its
// driver.
type ProviderDriverNamer interface {
	// DriverName returns the name to show for the driver, for example "siw (RFC 7306)".
	DriverName() string
}

// ProviderExtendedQuerier is a ProviderContext of a device with extended attributes.
type ProviderExtendedQuerier interface {
	QueryDeviceEx() (DeviceAttrEx, error)
}

// ProviderGIDTable is a ProviderContext of a device with GIDs and partition keys.
type ProviderGIDTable interface {
	// QueryGID returns the entry, or ErrNoGID if it is empty. The port exists, and the index is
	// within its table.
	QueryGID(port, index int) (GIDEntry, error)
	// QueryPKey returns the partition key, in host byte order.
	QueryPKey(port, index int) (uint16, error)
}

// ProviderCQResizer is a ProviderCQ that can be resized.
type ProviderCQResizer interface {
	// Resize sets the capacity to at least cqe completions. Completions in the queue are preserved.
	Resize(cqe int) error
}

// ProviderMRReregisterer is a ProviderMR that can be changed in place.
type ProviderMRReregisterer interface {
	// Rereg changes what the flags select. If the error Is ErrMRLost the region no longer gives
	// access; after any other error it is unchanged.
	Rereg(flags ReregFlags, pd ProviderPD, mem []byte, iova uint64, access AccessFlags) error
}

// ProviderDmabufRegistrar is a ProviderPD that registers memory of other devices (dma-buf).
type ProviderDmabufRegistrar interface {
	RegDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (ProviderMR, error)
}

// ProviderSRQAllocator is a ProviderPD that creates shared receive queues.
type ProviderSRQAllocator interface {
	// CreateSRQ creates a queue and returns its actual capacities, at least as large as requested.
	CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error)
}

// ProviderSRQ is a shared receive queue.
type ProviderSRQ interface {
	// PostRecv queues wrs in order and returns the number queued. If that is less than len(wrs),
	// the error is the reason.
	PostRecv(wrs []RecvWR) (int, error)
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	// Destroy is called when no QP uses the queue. It drops outstanding receives without
	// completions.
	Destroy() error
}

// ProviderAHCreator is a ProviderPD that creates address handles.
type ProviderAHCreator interface {
	CreateAH(attr AHAttr) (ProviderAH, error)
}

// ProviderAH is an address handle.
type ProviderAH interface {
	Destroy() error
}

// ProviderMWBinder is a ProviderQP of a device with type 1 windows.
type ProviderMWBinder interface {
	// BindMW queues the bind of b.MW with wr_id id and returns the window's new key.
	BindMW(id uint64, flags SendFlags, b *MWBind) (rkey uint32, err error)
}

// ProviderMulticaster is a ProviderQP that receives multicast datagrams.
type ProviderMulticaster interface {
	AttachMcast(gid GID, lid uint16) error
	DetachMcast(gid GID, lid uint16) error
}

// ProviderQPMover is a ProviderQP whose state a connection manager can change without calling
// Modify.
type ProviderQPMover interface {
	// Moved is called with the new state of the QP. For ERR, reason is the error for QP.Err to
	// return; the first reason is retained. A Modify to ERR follows, with which the device flushes
	// the requests.
	Moved(to QPState, reason error)
}

// ProviderQPState is a ProviderQP that knows its state without querying the device; printing a
// handle uses it.
type ProviderQPState interface {
	// KnownState returns the last known state, without taking a lock.
	KnownState() QPState
}

// ProviderQPExplainer is a ProviderQP that can explain why a request failed.
type ProviderQPExplainer interface {
	// Explain returns what is known about a failed completion: the opcode that it would have on
	// success, and the reason, an *AccessError if an access was refused. If nothing is known, known
	// is false and reason is nil. Like Err, it may be called after Destroy.
	Explain(wc *WC) (opcode WCOpcode, known bool, reason error)
}

// ProviderQPInitiator is a ProviderQP that needs to know whether it is on the active side of a
// connection.
type ProviderQPInitiator interface {
	// Initiated is called on the active side, after Moved to RTS.
	Initiated()
}

// ProviderQPWatcher is a ProviderQP that reports its failure. The connection manager then ends the
// connection, which notifies the peer; on InfiniBand nothing else would.
type ProviderQPWatcher interface {
	// Failed returns a channel that is closed when the QP enters state ERR: by Modify, by Moved,
	// when a failed completion is polled, or by an asynchronous event. It is also closed when
	// Destroy begins, before Destroy uses the device. A QP that returns to RESET gets a new
	// channel.
	Failed() <-chan struct{}
}

// ProviderQPLimiter is a ProviderQP that needs the negotiated ORD and IRD of its connection, even
// if no Modify sets them.
type ProviderQPLimiter interface {
	// SetDepths is called after Moved to RTS, with the negotiated limits on Reads and atomics in
	// progress, as requester (ord) and as responder (ird).
	SetDepths(ord, ird int)
}

// ProviderQPEmptyReads is a ProviderQP whose device may answer the peer's zero-length Reads
// incorrectly. Without this interface, a device answers them in order, as it does every Read.
type ProviderQPEmptyReads interface {
	AnswersEmptyReads() bool
}

// ProviderOpener is a ProviderContext of a device that can expose memory to the peer of a QP by a
// call, immediately instead of through the send queue. The effect is that of a type 2 window bound
// to the range. It serves devices that wrap this one; programs use windows. A device without
// OpBindMW returns ErrNotSupported.
type ProviderOpener interface {
	// OpenRange returns a key with which only the peer of this QP can write, and only to the memory
	// of s, provided that the QP grants REMOTE_WRITE. The region needs only LOCAL_WRITE. Keys are
	// as hard to guess as those of regions.
	OpenRange(q ProviderQP, s SGE) (rkey uint32, err error)
	// ShutRange invalidates such a key. Once it returns, nothing more is written through the key.
	// It does not wait for the peer. Each key is shut exactly once, before the QP is destroyed. The
	// region may be closed earlier; the key then gives no access.
	ShutRange(rkey uint32)
}

// ProviderLocalSinks is a ProviderContext of an iWARP device on which the sink of a Read needs only
// LOCAL_WRITE. On others it needs REMOTE_WRITE too, because the peer writes the response (RFC 5040
// section 5.1).
type ProviderLocalSinks interface {
	LocalSinks() bool
}
