// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/ibverbs/ksiw/ring/queue"
	"github.com/goverbs/goverbs/internal/ibverbs/uverbs"
)

// ringContext creates the queues of a siw with RFC 7306, whose requests libibverbs and libsiw
// cannot express: they have neither masks nor 8-byte immediates. The queues are created with the
// write commands of uverbs and mapped; requests and completions are written and read in Go
// (packages uverbs and ring/queue). libsiw, which does the same in C, is unaware of them.
//
// The commands go to the file descriptor of libibverbs' context, not to one of our own: queues, PDs
// and regions work together only if the same descriptor created them, and PDs and regions are
// created by libibverbs. Each Context of this package is an ibv_context of its own, which nothing
// else uses. (librdmacm has others, and siw finds a QP by its number, whichever context created
// it.) Only ringContext may therefore read its events. The number in an event is a cookie, which
// libibverbs would mistake for the address of an ibv_qp.
//
// Above the queues everything is as for siw without RFC 7306: a ledger restores the order of
// completions, which siw does not keep, and flushes the requests that siw loses. A ring is used
// only with the lock of its queue held, so by one goroutine at a time. The rings of a QP are in use
// until the QP is in ERR and barrier has returned, the ring of a CQ until the CQ is marked gone
// under its lock. Only then does destroying the object unmap them.
//
// A ring passes through these states:
//
//	made (create command) -> mapped (mmap) -> used -> destroyed (destroy command) -> unmapped
//
// If mapping fails, the object is destroyed at once. Before siw answers the destroy command, it
// finishes whatever it is doing with the QP; after that it no longer touches the ring.
type ringContext struct {
	ibverbs.Context
	fd    int // for commands
	async int // for events
	most  int // largest number of entries of a CQ
}

// newRingContext returns a context with rings around the library's context. most is the largest
// number of completions in a CQ of the device.
func newRingContext(c ibverbs.Context, most int) *ringContext {
	r := &ringContext{Context: c, most: most}
	r.fd, r.async = c.FDs()
	return r
}

// ringPD is a PD whose QPs and SRQs have rings.
type ringPD struct {
	ibverbs.PD
	r *ringContext
}

// AllocPD allocates a protection domain.
func (r *ringContext) AllocPD() (ibverbs.PD, error) {
	pd, err := r.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return ringPD{pd, r}, nil
}

// ringMR is a region of a ringPD.
type ringMR struct{ ibverbs.MR }

// Rereg replaces a ringPD with the library's PD and reregisters the region.
func (m ringMR) Rereg(flags int, pd ibverbs.PD, addr uintptr, length int, access uint32) (int, error) {
	if to, ok := pd.(ringPD); ok {
		pd = to.PD
	}
	return m.MR.Rereg(flags, pd, addr, length, access)
}

// RegMR registers memory.
func (pd ringPD) RegMR(addr uintptr, length int, iova uint64, access uint32) (ibverbs.MR, error) {
	return ringRegion(pd.PD.RegMR(addr, length, iova, access))
}

// RegDmabufMR registers another device's memory.
func (pd ringPD) RegDmabufMR(offset, length, iova uint64, fd int, access uint32) (ibverbs.MR, error) {
	return ringRegion(pd.PD.RegDmabufMR(offset, length, iova, fd, access))
}

func ringRegion(m ibverbs.MR, err error) (ibverbs.MR, error) {
	if err != nil {
		return nil, err
	}
	return ringMR{m}, nil
}

// ringVersion is the version of the contract with the kernel module: RFC 7306, version 2. It
// determines the layout of requests and completions. ringFamily holds the bits common to all
// versions. A device of the module reports its version in hw_ver, which is 0 for Linux's own siw.
const (
	ringVersion = 0x7306_0002
	ringFamily  = 0x7306 << 16
)

// isRingFamily reports whether a number is any version of the contract.
func isRingFamily(version uint32) bool { return version&^0xffff == ringFamily }

// ringAskQP follows the command to create a QP. A QP has RFC 7306 only if it is requested this way:
// otherwise a peer could complete the receives of a program that is not prepared for it.
// siw_uresp_create_qp.pad answers with the version, or with 0. Linux's own siw ignores the request
// and answers 0.
type ringAskQP struct {
	Version, _ uint32
}

var ringAsked = ringAskQP{Version: ringVersion}

// siw's parts of the responses to commands (<rdma/siw-abi.h>). The keys are offsets for mmap.
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

// ringErrno returns the errno of a non-nil error of package uverbs or of a mapping.
func ringErrno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// ringError returns the errno of err as an error, nil for nil.
func ringError(err error) error {
	if err == nil {
		return nil
	}
	return ringErrno(err)
}

// mapRing maps a queue.
func (r *ringContext) mapRing(key uint64, size int) ([]byte, error) {
	return unix.Mmap(r.fd, int64(key), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// version creates a QP to find out the version of the contract that siw implements. It returns 0 if
// siw implements none or the kernel refuses the commands.
func (r *ringContext) version() (uint32, error) {
	version, err := r.askVersion()
	for _, refusal := range []error{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.EPERM} {
		if errors.Is(err, refusal) {
			return 0, nil
		}
	}
	return version, err
}

func (r *ringContext) askVersion() (version uint32, err error) {
	pd, err := r.Context.AllocPD()
	if err != nil {
		return 0, callError("ibv_alloc_pd", err)
	}
	defer func() { err = errors.Join(err, callError("ibv_dealloc_pd", pd.Dealloc())) }()
	cq, _, _, err := uverbs.CreateCQ[ringMadeCQ](r.fd, uverbs.CQConfig{CQE: 1, Channel: -1})
	if err != nil {
		return 0, callError("uverbs CREATE_CQ", ringError(err))
	}
	defer func() { err = errors.Join(err, callError("uverbs DESTROY_CQ", ringError(uverbs.DestroyCQ(r.fd, cq)))) }()
	qp, _, _, made, err := uverbs.CreateQP[ringMadeQP](r.fd,
		uverbs.QPConfig{PD: pd.Handle(), SendCQ: cq, RecvCQ: cq, Type: uint8(QPTypeRC),
			Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}, ringAsked)
	if err != nil {
		return 0, callError("uverbs CREATE_QP", ringError(err))
	}
	return made.Version, callError("uverbs DESTROY_QP", ringError(uverbs.DestroyQP(r.fd, qp)))
}

// Event reads an event of the context.
func (r *ringContext) Event() (ibverbs.Event, error) {
	e, err := uverbs.ReadAsync(r.async)
	if err != nil {
		return ibverbs.Event{}, ringErrno(err)
	}
	ev := ibverbs.Event{Type: int32(e.Type)}
	switch EventType(e.Type) {
	case EventCQErr, EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig,
		EventPathMigErr,
		EventSRQErr, EventSRQLimitReached, EventQPLastWQEReached:
		ev.Cookie = e.Element
	case EventDeviceFatal:
	default:
		ev.Port = int32(e.Element)
	}
	return ev, nil
}

// ringChannel is a completion channel.
type ringChannel struct{ ibverbs.Channel }

// CreateChannel creates a completion channel.
func (r *ringContext) CreateChannel() (ibverbs.Channel, error) {
	ch, err := r.Context.CreateChannel()
	if err != nil {
		return nil, err
	}
	return ringChannel{ch}, nil
}

// Event reads an event of the channel.
func (ch ringChannel) Event() (cookie uint64, err error) {
	cookie, err = uverbs.ReadComp(ch.FD())
	return cookie, ringError(err)
}

// ringCQ is a completion queue.
type ringCQ struct {
	fd     int
	handle uint32
	mem    []byte
	ring   *queue.CQ
}

// ringSpare is the largest number of completions of siw for one request of the program: when a QP
// fails, a Write with immediate has two, because it is two requests of siw. A CQ is created this
// many times as large as requested, and CQE returns the larger size: siw notices an overflow only
// if the program and the kernel agree on the size.
const ringSpare = 2

// CreateCQ creates a completion queue.
func (r *ringContext) CreateCQ(cfg ibverbs.CQConfig) (ibverbs.CQ, int, error) {
	want := uverbs.CQConfig{Cookie: cfg.Cookie, CQE: uint32(max(cfg.CQE, min(ringSpare*cfg.CQE, r.most))),
		Vector: uint32(cfg.Vector), Channel: -1}
	if cfg.Channel != nil {
		want.Channel = int32(cfg.Channel.FD())
	}
	handle, _, made, err := uverbs.CreateCQ[ringMadeCQ](r.fd, want)
	if err != nil {
		return nil, 0, ringErrno(err)
	}
	cq := &ringCQ{fd: r.fd, handle: handle}
	if cq.mem, err = r.mapRing(made.Key, queue.CQSize(made.Entries)); err == nil {
		cq.ring, err = queue.NewCQ(cq.mem, made.Entries)
	}
	if err != nil {
		_ = cq.Destroy()
		return nil, 0, ringErrno(err)
	}
	return cq, int(made.Entries), nil
}

// ringStatus maps siw's statuses to completion statuses, as libsiw does.
var ringStatus = [...]WCStatus{
	queue.StatusSuccess:   WCSuccess,
	queue.StatusLocLen:    WCLocLenErr,
	queue.StatusLocProt:   WCLocProtErr,
	queue.StatusLocQPOp:   WCLocQPOpErr,
	queue.StatusFlushed:   WCWRFlushErr,
	queue.StatusBadResp:   WCBadRespErr,
	queue.StatusLocAccess: WCLocAccessErr,
	queue.StatusRemAccess: WCRemAccessErr,
	queue.StatusRemInvReq: WCRemInvReqErr,
	queue.StatusGeneral:   WCGeneralErr,
}

// ringOpcode returns the opcode of a completion. For a send it becomes exact in the ledger, which
// knows the request.
func ringOpcode(c *queue.Completion) WCOpcode {
	switch c.Op {
	case queue.OpWrite:
		return WCRDMAWrite
	case queue.OpRead, queue.OpReadLocalInv:
		return WCRDMARead
	case queue.OpFetchAdd:
		return WCFetchAdd
	case queue.OpCmpSwap:
		return WCCompSwap
	case queue.OpReceive:
		switch c.Flags & (queue.FlagImm | queue.FlagWrote) {
		case queue.FlagImm:
			return WCRecvImmData
		case queue.FlagImm | queue.FlagWrote:
			return WCRecvRDMAWithImm
		}
		return WCRecv
	}
	return WCSend
}

// Poll polls and converts completions.
func (cq *ringCQ) Poll(wcs []ibverbs.WC, held *ibverbs.Held) int {
	if held != nil {
		defer held.Store(0)
	}
	failed := 0
	for i := range wcs {
		var c queue.Completion
		if !cq.ring.Take(&c) {
			return i | failed
		}
		wc := &wcs[i]
		*wc = ibverbs.WC{ID: c.ID, Status: uint8(ringStatus[c.Status]), Opcode: uint8(ringOpcode(&c)), ByteLen: c.Bytes,
			QPNum: c.QP}
		if c.Flags&queue.FlagImm != 0 {
			wc.Flags, wc.Imm, wc.Imm64 = uint8(WCWithImm), uint32(c.Imm>>32), c.Imm
		}
		if c.Flags&queue.FlagInv != 0 {
			wc.Flags, wc.InvalidatedRKey = uint8(WCWithInv), c.Key
		}
		if wc.Status != uint8(WCSuccess) {
			failed = ibverbs.PollErrors
		}
	}
	return len(wcs) | failed
}

// ReqNotify arms the CQ.
func (cq *ringCQ) ReqNotify(solicitedOnly bool) error {
	cq.ring.Arm(solicitedOnly)
	return nil
}

// Resize is refused, as in libsiw.
func (cq *ringCQ) Resize(int) (int, error) { return 0, syscall.EOPNOTSUPP }

// Destroy destroys the queue.
func (cq *ringCQ) Destroy() error {
	return ringError(errors.Join(uverbs.DestroyCQ(cq.fd, cq.handle), unmap(cq.mem)))
}

// unmap unmaps a queue. It does nothing if mem is nil.
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

// CreateSRQ creates a shared receive queue.
func (pd ringPD) CreateSRQ(cookie uint64, a ibverbs.SRQAttr) (ibverbs.SRQ, ibverbs.SRQAttr, error) {
	handle, has, made, err := uverbs.CreateSRQ[ringMadeSRQ](pd.r.fd, uverbs.SRQConfig{Cookie: cookie, PD: pd.Handle(),
		Attr: uverbs.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}})
	if err != nil {
		return nil, ibverbs.SRQAttr{}, ringErrno(err)
	}
	s := &ringSRQ{fd: pd.r.fd, handle: handle}
	if s.mem, err = pd.r.mapRing(made.Key, queue.RQSize(made.Entries)); err == nil {
		s.ring, err = queue.NewRQ(s.mem, made.Entries)
	}
	if err != nil {
		_ = s.Destroy()
		return nil, ibverbs.SRQAttr{}, ringErrno(err)
	}
	return s, ibverbs.SRQAttr{MaxWR: has.MaxWR, MaxSGE: has.MaxSGE}, nil
}

// Recv posts a list.
func (s *ringSRQ) Recv(wrs []ibverbs.Recv, sges []ibverbs.SGE) ibverbs.Posted {
	return s.post(wrs, sges)
}

// Modify changes the size or the limit.
func (s *ringSRQ) Modify(a ibverbs.SRQAttr, mask uint32) error {
	return ringError(uverbs.ModifySRQ(s.fd, s.handle, uverbs.SRQAttr{MaxWR: a.MaxWR, Limit: a.Limit}, mask))
}

// Query queries the kernel.
func (s *ringSRQ) Query() (ibverbs.SRQAttr, error) {
	a, err := uverbs.QuerySRQ(s.fd, s.handle)
	return ibverbs.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}, ringError(err)
}

// Destroy destroys the queue.
func (s *ringSRQ) Destroy() error {
	return ringError(errors.Join(uverbs.DestroySRQ(s.fd, s.handle), unmap(s.mem)))
}
