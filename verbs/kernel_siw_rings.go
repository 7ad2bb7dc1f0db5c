// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/siwring"
	"github.com/goverbs/goverbs/internal/uverbs"
)

// ringQueues makes the queues of a siw that has RFC 7306, whose requests libibverbs and libsiw have
// no form for: neither masks nor immediates of 8 bytes. The queues are made by the write commands
// of uverbs and are mapped; requests and completions are written and read in Go (internal/uverbs,
// internal/siwring). libsiw, which does the same in C, knows nothing of them.
//
// The commands go to the descriptor of libibverbs' context, not to one of our own: queues, PDs and
// regions work together only if one descriptor has made them, and PDs and regions are libibverbs'.
// Each Context of this package is an ibv_context of its own, which nobody else uses (librdmacm has
// others, and siw finds a QP by its number, whichever context has made it). So only ringQueues
// reads its events, and the number in an event is a cookie, which libibverbs would take for the
// address of an ibv_qp.
//
// Above the queues everything is as for siw without RFC 7306: a ledger puts completions in order,
// which siw does not, and flushes the requests that siw forgets. A ring is used only with the lock
// of its queue, so by one goroutine at a time. A QP's rings are in use until its QP is in ERR and
// barrier has returned, a CQ's until it is gone under the lock of the CQ; only then does destroy
// unmap them.
//
// States of a ring, and what leads from one to the next:
//
//	made (create command) -> mapped (mmap) -> used -> destroyed (destroy command: siw touches it no more) -> unmapped
//
// If mapping fails, the object is destroyed at once. What siw still does with a QP when the command
// to destroy it comes, it ends before it answers.
type ringQueues struct {
	c     rawContext
	fd    int // of c
	async int // the descriptor of events
	most  int // entries of a CQ
}

// ringVersion is the version of the contract with the kernel module: RFC 7306, version 2. The
// layout of requests and completions depends on it. ringFamily are the bits that every version has.
// They are hw_ver of a device of the module, which is 0 of Linux's own siw.
const (
	ringVersion = 0x7306_0002
	ringFamily  = 0x7306 << 16
)

// isRingFamily reports whether a number is a version of the contract, whichever.
func isRingFamily(version uint32) bool { return version&^0xffff == ringFamily }

// ringAskQP follows the command to make a QP. A QP has RFC 7306 only if it was asked for in this
// way: a peer could complete the receives of a program that knows nothing of it.
// siw_uresp_create_qp.pad answers with the version, or with 0. Linux's own siw does not look at the
// question and answers 0.
type ringAskQP struct {
	Version, _ uint32
}

var ringAsked = ringAskQP{Version: ringVersion}

// What siw adds to the responses of commands (<rdma/siw-abi.h>). The keys are offsets for mmap.
type (
	ringMadeCQ struct { // struct siw_uresp_create_cq
		ID, Entries uint32
		Key         uint64
	}
	ringMadeQP struct { // struct siw_uresp_create_qp
		Num, SendEntries, RecvEntries uint32
		Version                       uint32
		SendKey, RecvKey              uint64
	}
	ringMadeSRQ struct { // struct siw_uresp_create_srq
		Entries, _ uint32
		Key        uint64
	}
)

// ringErrno is the errno of an error of package uverbs, or of a mapping.
func ringErrno(err error) int {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return int(errno)
	}
	return int(syscall.EIO)
}

// mapRing maps a queue.
func (r *ringQueues) mapRing(key uint64, size int) ([]byte, error) {
	return unix.Mmap(r.fd, int64(key), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// version makes a QP to find out the version of the contract that siw keeps: 0 = none, also if the
// kernel does not take the commands.
func (r *ringQueues) version() (uint32, error) {
	version, err := r.askVersion()
	for _, refusal := range []error{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.EPERM} {
		if errors.Is(err, refusal) {
			return 0, nil
		}
	}
	return version, err
}

func (r *ringQueues) askVersion() (version uint32, err error) {
	pd, rc := r.c.allocPD()
	if rc != 0 {
		return 0, callError("ibv_alloc_pd", rc)
	}
	defer func() { err = errors.Join(err, callError("ibv_dealloc_pd", pd.dealloc())) }()
	cq, _, _, err := uverbs.CreateCQ[ringMadeCQ](r.fd, uverbs.CQConfig{CQE: 1, Channel: -1})
	if err != nil {
		return 0, callError("uverbs CREATE_CQ", ringErrno(err))
	}
	defer func() { err = errors.Join(err, callError("uverbs DESTROY_CQ", ringErrno(uverbs.DestroyCQ(r.fd, cq)))) }()
	qp, _, _, made, err := uverbs.CreateQP[ringMadeQP](r.fd,
		uverbs.QPConfig{PD: pd.handle(), SendCQ: cq, RecvCQ: cq, Type: uint8(QPTypeRC),
			Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}, ringAsked)
	if err != nil {
		return 0, callError("uverbs CREATE_QP", ringErrno(err))
	}
	return made.Version, callError("uverbs DESTROY_QP", ringErrno(uverbs.DestroyQP(r.fd, qp)))
}

// asyncEvent reads an event of the context.
func (r *ringQueues) asyncEvent() (AsyncEvent, uint64, int) {
	e, err := uverbs.ReadAsync(r.async)
	if err != nil {
		return AsyncEvent{}, 0, ringErrno(err)
	}
	ev := AsyncEvent{Type: EventType(e.Type)}
	switch ev.Type {
	case EventCQErr, EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig,
		EventPathMigErr,
		EventSRQErr, EventSRQLimitReached, EventQPLastWQEReached:
		return ev, e.Element, 0
	case EventDeviceFatal:
	default:
		ev.Port = int(e.Element)
	}
	return ev, 0, 0
}

// compEvent reads an event of a channel.
func (r *ringQueues) compEvent(ch rawChannel) (cookie uint64, rc int) {
	cookie, err := uverbs.ReadComp(ch.fd())
	return cookie, ringErrno(err)
}

// ringCQ is a completion queue.
type ringCQ struct {
	fd     int
	handle uint32
	mem    []byte
	ring   *siwring.CQ
}

// ringSpare is the largest number of completions that siw can have for one request of the program:
// when a QP fails, two for a Write with immediate, which is two requests of siw. A CQ is made this
// many times as large as was asked for, and CQE returns the larger size: siw notices an overflow
// only if the program and the kernel agree about the size.
const ringSpare = 2

func (r *ringQueues) createCQ(cqe int, cookie uint64, ch rawChannel, vector int) (deviceCQ, int, int) {
	cfg := uverbs.CQConfig{Cookie: cookie, CQE: uint32(max(cqe, min(ringSpare*cqe, r.most))), Vector: uint32(vector),
		Channel: -1}
	if ch != 0 {
		cfg.Channel = int32(ch.fd())
	}
	handle, _, made, err := uverbs.CreateCQ[ringMadeCQ](r.fd, cfg)
	if err != nil {
		return nil, 0, ringErrno(err)
	}
	cq := &ringCQ{fd: r.fd, handle: handle}
	if cq.mem, err = r.mapRing(made.Key, siwring.CQSize(made.Entries)); err == nil {
		cq.ring, err = siwring.NewCQ(cq.mem, made.Entries)
	}
	if err != nil {
		cq.destroy()
		return nil, 0, ringErrno(err)
	}
	return cq, int(made.Entries), 0
}

// ringStatus is the status of a completion by siw's numbers, as libsiw tells it.
var ringStatus = [...]WCStatus{
	siwring.StatusSuccess:   WCSuccess,
	siwring.StatusLocLen:    WCLocLenErr,
	siwring.StatusLocProt:   WCLocProtErr,
	siwring.StatusLocQPOp:   WCLocQPOpErr,
	siwring.StatusFlushed:   WCWRFlushErr,
	siwring.StatusBadResp:   WCBadRespErr,
	siwring.StatusLocAccess: WCLocAccessErr,
	siwring.StatusRemAccess: WCRemAccessErr,
	siwring.StatusRemInvReq: WCRemInvReqErr,
	siwring.StatusGeneral:   WCGeneralErr,
}

// ringOpcode is the opcode of a completion. That of a send becomes exact in the ledger, which knows
// the request.
func ringOpcode(c *siwring.Completion) WCOpcode {
	switch c.Op {
	case siwring.OpWrite:
		return WCRDMAWrite
	case siwring.OpRead, siwring.OpReadLocalInv:
		return WCRDMARead
	case siwring.OpFetchAdd:
		return WCFetchAdd
	case siwring.OpCmpSwap:
		return WCCompSwap
	case siwring.OpReceive:
		switch c.Flags & (siwring.FlagImm | siwring.FlagWrote) {
		case siwring.FlagImm:
			return WCRecvImmData
		case siwring.FlagImm | siwring.FlagWrote:
			return WCRecvRDMAWithImm
		}
		return WCRecv
	}
	return WCSend
}

// take converts completions.
func (cq *ringCQ) take(wcs []WC, _ uint) int {
	failed := 0
	for i := range wcs {
		var c siwring.Completion
		if !cq.ring.Take(&c) {
			return i | failed
		}
		wc := &wcs[i]
		*wc = WC{ID: c.ID, Status: ringStatus[c.Status], Opcode: ringOpcode(&c), ByteLen: c.Bytes, QPNum: c.QP}
		if c.Flags&siwring.FlagImm != 0 {
			wc.Flags, wc.Imm, wc.Imm64 = WCWithImm, uint32(c.Imm>>32), c.Imm
		}
		if c.Flags&siwring.FlagInv != 0 {
			wc.Flags, wc.InvalidatedRKey = WCWithInv, c.Key
		}
		if wc.Status != WCSuccess {
			failed = pollErrors
		}
	}
	return len(wcs) | failed
}

func (cq *ringCQ) reqNotify(solicitedOnly bool) int {
	cq.ring.Arm(solicitedOnly)
	return 0
}

// resize is refused, as by libsiw.
func (cq *ringCQ) resize(int) (room, rc int) { return 0, int(syscall.EOPNOTSUPP) }

func (cq *ringCQ) destroy() int {
	return ringErrno(errors.Join(uverbs.DestroyCQ(cq.fd, cq.handle), unmap(cq.mem)))
}

// unmap unmaps a queue, if it is mapped.
func unmap(mem []byte) error {
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// ringSRQ is a shared receive queue.
type ringSRQ struct {
	fd     int
	handle uint32
	mem    []byte
	ringReceives
}

func (r *ringQueues) createSRQ(pd rawPD, cookie uint64, attr SRQAttr) (deviceSRQ, SRQAttr, int) {
	handle, has, made, err := uverbs.CreateSRQ[ringMadeSRQ](r.fd, uverbs.SRQConfig{Cookie: cookie, PD: pd.handle(),
		Attr: uverbs.SRQAttr{MaxWR: uint32(attr.MaxWR), MaxSGE: uint32(attr.MaxSGE), Limit: uint32(attr.SRQLimit)}})
	if err != nil {
		return nil, SRQAttr{}, ringErrno(err)
	}
	s := &ringSRQ{fd: r.fd, handle: handle}
	if s.mem, err = r.mapRing(made.Key, siwring.RQSize(made.Entries)); err == nil {
		s.ring, err = siwring.NewRQ(s.mem, made.Entries)
	}
	if err != nil {
		s.destroy()
		return nil, SRQAttr{}, ringErrno(err)
	}
	return s, SRQAttr{MaxWR: int(has.MaxWR), MaxSGE: int(has.MaxSGE)}, 0
}

func (s *ringSRQ) modify(attr SRQAttr, mask SRQAttrMask) int {
	return ringErrno(uverbs.ModifySRQ(s.fd, s.handle,
		uverbs.SRQAttr{MaxWR: uint32(attr.MaxWR), Limit: uint32(attr.SRQLimit)}, uint32(mask)))
}

func (s *ringSRQ) query() (SRQAttr, int) {
	a, err := uverbs.QuerySRQ(s.fd, s.handle)
	return SRQAttr{MaxWR: int(a.MaxWR), MaxSGE: int(a.MaxSGE), SRQLimit: int(a.Limit)}, ringErrno(err)
}

func (s *ringSRQ) destroy() int {
	return ringErrno(errors.Join(uverbs.DestroySRQ(s.fd, s.handle), unmap(s.mem)))
}
