// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The interfaces in this file are optional: a provider's object implements those of its device's abilities. Where it does
// not, the handle's call fails with [ErrNotSupported]. A provider that implements one for some of its devices only
// returns an error that Is ErrNotSupported for the others. They are looked for by [Ability], so an object that wraps another
// one has those of that too.

// ProviderKernelDevice is a ProviderDevice of the kernel, which libibverbs drives: librdmacm makes its connections.
type ProviderKernelDevice interface {
	ProviderDevice
	// KernelName is the name by which the kernel knows the device, for example "mlx5_0".
	KernelName() string
}

// ProviderGIDTable is a ProviderContext of a device with GIDs and partition keys.
type ProviderGIDTable interface {
	// QueryGID returns the entry, or ErrNoGID for one that is empty. The port exists, the index is within its table.
	QueryGID(port, index int) (GIDEntry, error)
	// QueryPKey returns the partition key, in host order.
	QueryPKey(port, index int) (uint16, error)
}

// ProviderCQResizer is a ProviderCQ that can be resized.
type ProviderCQResizer interface {
	// Resize makes room for at least cqe completions; those in the queue stay.
	Resize(cqe int) error
}

// ProviderMRReregisterer is a ProviderMR that can be changed in place.
type ProviderMRReregisterer interface {
	// Rereg changes what the flags name. If the error Is ErrMRLost the region gives no access any more, after any other
	// it is as before.
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
	// PostRecv queues wrs in order and returns how many it took; fewer than all come with the reason.
	PostRecv(wrs []RecvWR) (int, error)
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	// Destroy is called when no QP uses the queue. What is in it makes no completions.
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
	// BindMW queues the binding of b.MW as request id and returns the window's new key.
	BindMW(id uint64, flags SendFlags, b *MWBind) (rkey uint32, err error)
}

// ProviderMulticaster is a ProviderQP that receives multicast datagrams.
type ProviderMulticaster interface {
	AttachMcast(gid GID, lid uint16) error
	DetachMcast(gid GID, lid uint16) error
}

// ProviderQPMover is a ProviderQP whose state a connection manager moves behind its back.
type ProviderQPMover interface {
	// Moved tells that the QP has gone to a state, with the reason for ERR: QP.Err returns it. The first reason stays.
	// With ERR it comes just before the Modify to ERR that has the device flush the requests: it does not replace it.
	Moved(to QPState, reason error)
}

// ProviderQPInitiator is a ProviderQP that wants to know that it has the active side of a connection.
type ProviderQPInitiator interface {
	// Initiated tells it, after Moved to RTS.
	Initiated()
}

// ProviderQPWatcher is a ProviderQP that tells when it fails. A connection manager ends the connection then, so that the peer
// learns of it: on InfiniBand nothing else tells.
type ProviderQPWatcher interface {
	// Failed returns a channel that is closed when the QP goes into the state ERR, whoever finds out: Modify, Moved, a failed
	// completion that was polled, an asynchronous event; and when Destroy begins, before it touches the device. A QP
	// that has been in RESET since has a new channel.
	Failed() <-chan struct{}
}

// ProviderQPLimiter is a ProviderQP that wants to know the depths of its connection where no Modify tells them.
type ProviderQPLimiter interface {
	// SetDepths tells how many Reads and atomics in progress were agreed on, as requester and as responder. It comes after
	// Moved to RTS.
	SetDepths(ord, ird int)
}
