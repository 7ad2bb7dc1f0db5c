// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The interfaces in this file are optional: a provider's object implements those for which its
// device has the ability. If it does not implement one, the handle's call fails with
// [ErrNotSupported]. If a provider can do it for some of its devices only, it returns an error that
// Is ErrNotSupported for the others. [Ability] looks these interfaces up, so an object that wraps
// another one also has those of the inner object.

// ProviderKernelDevice is a device of the kernel, used through libibverbs. librdmacm makes its
// connections.
type ProviderKernelDevice interface {
	ProviderDevice
	// KernelName is the name of the device in the kernel, for example "mlx5_0".
	KernelName() string
}

// ProviderDriverNamer is a ProviderContext of a device that has more than others of its driver.
type ProviderDriverNamer interface {
	// DriverName is what to call the driver, for example "siw (RFC 7306)".
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
	// QueryPKey returns the partition key, in host order.
	QueryPKey(port, index int) (uint16, error)
}

// ProviderCQResizer is a ProviderCQ that can be resized.
type ProviderCQResizer interface {
	// Resize makes the queue large enough for at least cqe completions. Completions in the queue
	// stay there.
	Resize(cqe int) error
}

// ProviderMRReregisterer is a ProviderMR that can be changed in place.
type ProviderMRReregisterer interface {
	// Rereg changes what the flags select. If the error Is ErrMRLost the region gives no access any
	// more; after any other error it is unchanged.
	Rereg(flags ReregFlags, pd ProviderPD, mem []byte, iova uint64, access AccessFlags) error
}

// ProviderDmabufRegistrar is a ProviderPD that registers memory of other devices.
type ProviderDmabufRegistrar interface {
	RegDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (ProviderMR, error)
}

// ProviderSRQAllocator is a ProviderPD that makes shared receive queues.
type ProviderSRQAllocator interface {
	// CreateSRQ makes a queue; the returned sizes are at least those asked for.
	CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error)
}

// ProviderSRQ is a shared receive queue.
type ProviderSRQ interface {
	// PostRecv queues wrs in order and returns the number that it took. If it did not take all, the
	// error is the reason.
	PostRecv(wrs []RecvWR) (int, error)
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	// Destroy is called when no QP uses the queue. Receives in it are dropped without completions.
	Destroy() error
}

// ProviderAHCreator is a ProviderPD that makes address handles.
type ProviderAHCreator interface {
	CreateAH(attr AHAttr) (ProviderAH, error)
}

// ProviderAH is an address handle.
type ProviderAH interface {
	Destroy() error
}

// ProviderMWBinder is a ProviderQP of a device with type 1 windows.
type ProviderMWBinder interface {
	// BindMW queues the bind of b.MW as request id and returns the window's new key.
	BindMW(id uint64, flags SendFlags, b *MWBind) (rkey uint32, err error)
}

// ProviderMulticaster is a ProviderQP that receives multicast datagrams.
type ProviderMulticaster interface {
	AttachMcast(gid GID, lid uint16) error
	DetachMcast(gid GID, lid uint16) error
}

// ProviderQPMover is a ProviderQP whose state is also changed by a connection manager, without a
// Modify.
type ProviderQPMover interface {
	// Moved reports the new state of the QP. For ERR it has the reason, which QP.Err returns; the
	// first reason is kept. A Moved to ERR is followed by the Modify to ERR with which the device
	// flushes the requests.
	Moved(to QPState, reason error)
}

// ProviderQPState is a ProviderQP that knows its state without asking the device, for those who
// print the handle.
type ProviderQPState interface {
	// KnownState is the last known state. It takes no lock.
	KnownState() QPState
}

// ProviderQPExplainer is a ProviderQP that knows why a request has failed.
type ProviderQPExplainer interface {
	// Explain returns what is known of a completion that has failed: the opcode that it would have,
	// had it succeeded, and the reason, an *AccessError if it is one. known is false, and reason
	// nil, for those of which it knows nothing. It may be called after Destroy, as Err.
	Explain(wc *WC) (opcode WCOpcode, known bool, reason error)
}

// ProviderQPInitiator is a ProviderQP that needs to know whether it is on the active side of a
// connection.
type ProviderQPInitiator interface {
	// Initiated is called on the active side, after Moved to RTS.
	Initiated()
}

// ProviderQPWatcher is a ProviderQP that reports its failure. The connection manager then ends the
// connection, which notifies the peer: on InfiniBand nothing else does.
type ProviderQPWatcher interface {
	// Failed returns a channel that is closed when the QP goes into the state ERR: by Modify, by
	// Moved, by a failed completion that is polled, or by an asynchronous event. It is also closed
	// when Destroy begins, before Destroy uses the device. A QP that goes to RESET gets a new
	// channel.
	Failed() <-chan struct{}
}

// ProviderQPLimiter is a ProviderQP that needs to know the depths of its connection, even if no
// Modify sets them.
type ProviderQPLimiter interface {
	// SetDepths reports the agreed numbers of Reads and atomics in progress, as requester and as
	// responder. It is called after Moved to RTS.
	SetDepths(ord, ird int)
}

// ProviderQPEmptyReads is a ProviderQP of a device that may answer a Read of 0 bytes of the peer
// wrongly. Without this interface a device answers it after everything before it, as every Read.
type ProviderQPEmptyReads interface {
	AnswersEmptyReads() bool
}

// ProviderOpener is a ProviderContext of a device that opens memory to the peer of a QP by a call,
// at once and not by a request in the send queue. It does what a window of type 2 does that is
// bound to the range, for devices that wrap this one; programs have windows. A device without
// OpBindMW returns ErrNotSupported.
type ProviderOpener interface {
	// OpenRange returns a key by which the peer of this QP, and nobody else, can write to the
	// memory of an element and to nothing else, as far as the QP lets its peer write. Its region
	// needs LOCAL_WRITE and no other right. Keys are as hard to guess as those of regions.
	OpenRange(q ProviderQP, s SGE) (rkey uint32, err error)
	// ShutRange invalidates such a key. When it returns, nothing is written by it any more. It does
	// not wait for the peer. Each key is shut once, before the QP is destroyed; a region may be
	// closed before that, and the key gives no access then.
	ShutRange(rkey uint32)
}

// ProviderLocalSinks is a ProviderContext of an iWARP device on which a region needs LOCAL_WRITE
// alone to be the sink of a Read. Others need REMOTE_WRITE too, because an answer is written by the
// peer (RFC 5040 section 5.1).
type ProviderLocalSinks interface {
	LocalSinks() bool
}
