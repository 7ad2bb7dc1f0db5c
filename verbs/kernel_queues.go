// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// deviceQueues makes the queues of a device and reads their events: the library (libraryQueues),
// or, for a driver whose requests the library has no form for, the provider itself (ringQueues).
// All other objects of a device, such as PDs and regions, are the library's. The functions return 0
// or an errno, as those of cgo_verbs.go.
type deviceQueues interface {
	// createCQ also returns for how many completions there is room.
	createCQ(cqe int, cookie uint64, ch rawChannel, vector int) (cq deviceCQ, room, rc int)
	// createSRQ also returns what the queue has.
	createSRQ(pd rawPD, cookie uint64, attr SRQAttr) (deviceSRQ, SRQAttr, int)
	// createQP also returns what the QP has, and its number.
	createQP(pd rawPD, cfg rawQPConfig) (q deviceQP, has QPCap, num uint32, rc int)
	// asyncEvent takes an event and the number of its object, compEvent one of a channel: the
	// number of its CQ. The result is EAGAIN if there is none.
	asyncEvent() (ev AsyncEvent, cookie uint64, rc int)
	compEvent(ch rawChannel) (cookie uint64, rc int)
}

// A deviceCQ is a rawCQ or a ringCQ.
type deviceCQ interface {
	// take polls. It returns the number of completions, with pollErrors if one of them is not a
	// success, or a negative number that means nothing but failure.
	take(wcs []WC, withInv uint) int
	reqNotify(solicitedOnly bool) int
	resize(cqe int) (room, rc int)
	destroy() int
}

// A deviceQP is a rawQP or a ringQP. send and receive return what rawQP.postSend does.
type deviceQP interface {
	send(wrs []flatSend, sges []SGE, ext []flatExt) uint64
	receive(wrs []flatRecv, sges []SGE) uint64
	modify(a *QPAttr, mask QPAttrMask) int
	query() (QPAttr, int)
	bindMW(id uint64, flags SendFlags, mw rawMW, mr rawMR, addr, length uint64, access AccessFlags) int
	mcast(gid GID, lid uint16, attach bool) int
	destroy() int
}

// A deviceSRQ is a rawSRQ or a ringSRQ.
type deviceSRQ interface {
	receive(wrs []flatRecv, sges []SGE) uint64
	modify(attr SRQAttr, mask SRQAttrMask) int
	query() (SRQAttr, int)
	destroy() int
}

func (cq rawCQ) take(wcs []WC, withInv uint) int { return cq.poll(wcs, withInv, nil) }

func (q rawQP) send(wrs []flatSend, sges []SGE, ext []flatExt) uint64 {
	return q.postSend(wrs, sges, ext, nil)
}
func (q rawQP) receive(wrs []flatRecv, sges []SGE) uint64 { return q.postRecv(wrs, sges, nil) }

func (s rawSRQ) receive(wrs []flatRecv, sges []SGE) uint64 { return s.postRecv(wrs, sges) }

// libraryQueues has the library make the queues of a context.
type libraryQueues struct{ c rawContext }

func (l libraryQueues) createCQ(cqe int, cookie uint64, ch rawChannel, vector int) (deviceCQ, int, int) {
	cq, room, rc := l.c.createCQ(cqe, cookie, ch, vector)
	return cq, room, rc
}

func (libraryQueues) createSRQ(pd rawPD, cookie uint64, attr SRQAttr) (deviceSRQ, SRQAttr, int) {
	s, has, rc := pd.createSRQ(cookie, attr)
	return s, has, rc
}

func (libraryQueues) createQP(pd rawPD, cfg rawQPConfig) (deviceQP, QPCap, uint32, int) {
	q, has, num, rc := pd.createQP(cfg)
	return q, has, num, rc
}

func (l libraryQueues) asyncEvent() (AsyncEvent, uint64, int)         { return l.c.asyncEvent() }
func (libraryQueues) compEvent(ch rawChannel) (cookie uint64, rc int) { return ch.event() }
