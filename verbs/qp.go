// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// Default capacities of a QP: requests per queue, elements per request, bytes of inline data.
const (
	DefaultSendWR        = 128
	DefaultRecvWR        = 128
	DefaultSGE           = 1
	DefaultMaxInlineData = 0
)

// QPConfig describes a queue pair.
type QPConfig struct {
	// SendCQ and RecvCQ receive the completions. Both are required, and may be the same. A CQ needs
	// room for every request outstanding on all its QPs and SRQs together, because each may
	// complete, at the latest when the QP fails. Queues deeper than their CQ are allowed; then the
	// program must not post more than the CQ can hold. If a CQ overflows, all its QPs enter the
	// error state; see Context.CreateCQ.
	SendCQ, RecvCQ *CQ
	Type           QPType // 0 = QPTypeRC
	// SRQ supplies the QP's receives (nil = the QP has its own receive queue).
	SRQ *SRQ
	// Cap configures the capacities. Zero fields mean DefaultSendWR, DefaultRecvWR, DefaultSGE
	// (send and receive) and no inline data. The device may provide more; see QP.Cap.
	Cap QPCap
	// SigAll makes every send request signalled (sq_sig_all).
	SigAll bool
	// SendOps are operations that the QP must support (send_ops_flags of ibv_create_qp_ex(3)). If
	// it cannot, the error of CreateQP Is [ErrNotSupported]. Only OpAtomicWrite must be listed to
	// be usable; all other operations of the device and the service are available on every QP.
	SendOps OpSet
}

// QP is a queue pair: one end of a connection. All methods may be called concurrently. The relative
// order of concurrent posts is undefined, but the requests of one list stay together.
//
// Posting never blocks. The requests of a queue complete in posting order. After the first error
// the QP is in state ERR, and all other requests complete with [WCWRFlushErr], including those
// posted later.
type QP struct {
	node   lifetime.Node
	pd     *PD
	p      ProviderQP
	num    uint32
	known  ProviderQPState // p if it tracks its state, or nil
	sendCQ *CQ
	recvCQ *CQ
	cap    QPCap
	typ    QPType
	srq    *SRQ
	ops    OpSet
	maxRd  int          // largest number of elements in a Read
	direct directPoster // p if it checks and posts in one pass, or nil
}

// directPoster is a provider's QP that checks and converts a list in one pass; otherwise the handle
// checks the list before the provider converts it. Its own lock makes Close wait: after the node is
// closed, Destroy waits for posts in progress, and later posts find the node closed.
type directPoster interface {
	// canPostDirect reports whether this QP supports it.
	canPostDirect() bool
	postSendDirect(q *QP, wrs []SendWR) (int, error)
	postRecvDirect(q *QP, wrs []RecvWR) (int, error)
}

// CreateQP creates a queue pair in state RESET (ibv_create_qp(3)).
func (pd *PD) CreateQP(cfg QPConfig) (*QP, error) {
	if err := pd.enter("CreateQP"); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	qp, err := pd.createQP(cfg)
	return qp, opError("CreateQP", pd.ctx.dev.Name(), err)
}

func (pd *PD) createQP(cfg QPConfig) (*QP, error) {
	if cfg.SendCQ == nil || cfg.RecvCQ == nil {
		return nil, invalid("a QP needs a SendCQ and a RecvCQ")
	}
	if cfg.SendCQ.ctx != pd.ctx || cfg.RecvCQ.ctx != pd.ctx {
		return nil, fmt.Errorf("%w: the CQ is of another context than the PD", ErrForeign)
	}
	if cfg.Type == 0 {
		cfg.Type = QPTypeRC
	}
	if opsOf(cfg.Type) == 0 {
		return nil, fmt.Errorf("%w: QP type %v", ErrNotSupported, cfg.Type)
	}
	ops, err := pd.fillOps(cfg.SendOps, cfg.Type)
	if err != nil {
		return nil, err
	}
	c, err := pd.fillCap(cfg.Cap)
	if err != nil {
		return nil, err
	}
	// Keep both CQs open while the provider uses them. From Init on, the tree of objects ensures
	// it.
	if !cfg.SendCQ.node.Enter() {
		return nil, ErrClosed
	}
	defer cfg.SendCQ.node.Exit()
	if !cfg.RecvCQ.node.Enter() {
		return nil, ErrClosed
	}
	defer cfg.RecvCQ.node.Exit()
	pcfg := ProviderQPConfig{SendCQ: cfg.SendCQ.p, RecvCQ: cfg.RecvCQ.p, Type: cfg.Type, Cap: c, SigAll: cfg.SigAll,
		SendOps: cfg.SendOps}
	parents := []*lifetime.Node{&pd.node, &cfg.SendCQ.node, &cfg.RecvCQ.node}
	if s := cfg.SRQ; s != nil {
		if s.pd.ctx != pd.ctx {
			return nil, fmt.Errorf("%w: the SRQ is of another context than the PD", ErrForeign)
		}
		if !s.node.Enter() {
			return nil, ErrClosed
		}
		defer s.node.Exit()
		pcfg.SRQ = s.p
		parents = append(parents, &s.node)
	}
	qp := &QP{pd: pd, sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ, srq: cfg.SRQ, typ: cfg.Type,
		ops: ops, maxRd: pd.ctx.attr.MaxSGERd}
	qp.p, qp.cap, err = pd.p.CreateQP(qp, pcfg)
	if err != nil {
		return nil, err
	}
	qp.num = qp.p.Num()
	qp.known, _ = Ability[ProviderQPState](qp.p)
	if d, ok := qp.p.(directPoster); ok && d.canPostDirect() {
		qp.direct = d
	} else if b := newBypassPoster(qp); b != nil {
		qp.direct = b
	}
	if err := qp.node.Init("QP", qp.Close, parents...); err != nil {
		return nil, errors.Join(err, qp.p.Destroy())
	}
	return qp, nil
}

// onRequest are the operations that a QP supports only if it was created with them.
const onRequest OpSet = 1 << OpAtomicWrite

// fillOps returns the operations of a QP created with SendOps want, or an error naming those it
// cannot support.
func (pd *PD) fillOps(want OpSet, t QPType) (OpSet, error) {
	if unknown := want &^ AllOps; unknown != 0 {
		return 0, invalid("SendOps: unknown bits %#x", uint32(unknown))
	}
	has := pd.ctx.ops & opsOf(t)
	if lacks := want &^ has; lacks != 0 {
		return 0, fmt.Errorf("%w: SendOps: the device has no %v for QPs of type %v", ErrNotSupported, lacks, t)
	}
	return has &^ (onRequest &^ want), nil
}

// fillCap applies the defaults and checks the device's limits.
func (pd *PD) fillCap(c QPCap) (QPCap, error) {
	return c, fillSizes([]size{
		{"max_qp_wr (send)", &c.MaxSendWR, DefaultSendWR, pd.ctx.attr.MaxQPWR},
		{"max_qp_wr (receive)", &c.MaxRecvWR, DefaultRecvWR, pd.ctx.attr.MaxQPWR},
		{"max_sge (send)", &c.MaxSendSGE, DefaultSGE, pd.ctx.attr.MaxSGE},
		{"max_sge (receive)", &c.MaxRecvSGE, DefaultSGE, pd.ctx.attr.MaxSGE},
		{"max_inline_data", &c.MaxInlineData, DefaultMaxInlineData, pd.ctx.attr.MaxInlineData},
	})
}

// size is a requested capacity.
type size struct {
	name       string
	v          *int
	fill, most int // default and device limit
}

// fillSizes applies the defaults and checks the limits.
func fillSizes(sizes []size) error {
	for _, s := range sizes {
		if *s.v < 0 {
			return invalid("%s: %d", s.name, *s.v)
		}
		if *s.v == 0 {
			*s.v = min(s.fill, s.most)
		}
		if err := limit(s.name, *s.v, s.most); err != nil {
			return err
		}
	}
	return nil
}

// Num returns the QP number (qp_num), as found in completions.
func (q *QP) Num() uint32 { return q.num }

// PD returns the QP's protection domain.
func (q *QP) PD() *PD { return q.pd }

// Context returns the context of the QP.
func (q *QP) Context() *Context { return q.pd.ctx }

// SendCQ returns the CQ of the send queue.
func (q *QP) SendCQ() *CQ { return q.sendCQ }

// RecvCQ returns the CQ of the receive queue.
func (q *QP) RecvCQ() *CQ { return q.recvCQ }

// Type returns the transport service of the QP.
func (q *QP) Type() QPType { return q.typ }

// Supports reports whether the operation can be posted: the device and the QP's transport service
// must have it, and for OpAtomicWrite the QP must have been created with it.
func (q *QP) Supports(op Op) bool { return q.ops.Has(op) }

// SRQ returns the shared receive queue of the QP, or nil if it has its own receive queue.
func (q *QP) SRQ() *SRQ { return q.srq }

// Cap returns the actual capacities.
func (q *QP) Cap() QPCap { return q.cap }

// Provider returns the provider's QP object, for connection managers and other code that extends a
// provider.
func (q *QP) Provider() ProviderQP { return q.p }

func (q *QP) opError(op string, err error) error { return opError(op, q.pd.ctx.dev.Name(), err) }

// PostSend queues send requests in order (ibv_post_send(3)) and returns the number n that it
// queued. If n < len(wrs), the error describes what is wrong with wrs[n]; the requests before it
// are queued. Posting is allowed in states RTS, SQD and ERR. It does not block and, on success,
// does not allocate, except for requests that must be rewritten for a faulty driver
// (docs/support.md).
func (q *QP) PostSend(wrs []SendWR) (n int, err error) {
	if q.direct != nil {
		if n, err = q.direct.postSendDirect(q, wrs); err != nil {
			err = q.postError("PostSend", n, err)
		}
		return n, err
	}
	if n, err = q.checkAndPost(q.p, wrs); err != nil {
		err = q.postError("PostSend", n, err)
	}
	return n, err
}

// checkAndPost checks a list and posts its valid prefix to p, which is q's provider or one below
// it. The error is a plain cause.
func (q *QP) checkAndPost(p ProviderQP, wrs []SendWR) (n int, err error) {
	if !q.node.Enter() {
		return 0, ErrClosed
	}
	good := len(wrs)
	for i := range wrs {
		if err = q.checkSend(&wrs[i]); err != nil {
			good = i
			break
		}
	}
	if good > 0 || err == nil {
		var perr error
		if n, perr = p.PostSend(wrs[:good]); perr != nil {
			err = perr
		}
	}
	rekey(wrs[:n])
	q.node.Exit()
	return n, err
}

// postError returns the error of a post that queued n requests.
func (q *QP) postError(op string, n int, err error) error {
	return q.opError(op, requestCause(n, err))
}

// checkSend checks everything that depends on neither memory nor state.
func (q *QP) checkSend(wr *SendWR) error {
	if int(wr.Opcode) >= len(opOf) || opOf[wr.Opcode] == opCount {
		return invalid("send opcode %d", wr.Opcode)
	}
	if !q.ops.Has(opOf[wr.Opcode]) {
		return q.lacksOp(wr.Opcode)
	}
	if wr.Flags&^sendFlagsKnown != 0 {
		return invalid("send flags %v", wr.Flags)
	}
	if q.typ == QPTypeUD {
		if err := q.checkUD(wr.UD); err != nil {
			return err
		}
	}
	if len(wr.SGL) > q.cap.MaxSendSGE {
		return limit("max_send_sge", len(wr.SGL), q.cap.MaxSendSGE)
	}
	var total uint64
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Length)
	}
	if total > 1<<32-1 {
		return &LimitError{Name: "max_msg_sz", Limit: 1<<32 - 1, Value: total}
	}
	switch wr.Opcode {
	case WRSend, WRSendWithInv, WRSendWithImm, WRRDMAWrite, WRRDMAWriteWithImm:
		if wr.Flags&SendInline != 0 && total > uint64(q.cap.MaxInlineData) {
			return limit("max_inline_data", int(total), q.cap.MaxInlineData)
		}
		return wr.inside(total)
	case WRRDMARead:
		if len(wr.SGL) > q.maxRd {
			return limit("max_sge_rd", len(wr.SGL), q.maxRd)
		}
	case WRAtomicFetchAndAdd, WRMaskedAtomicFetchAndAdd, WRAtomicCmpAndSwp, WRMaskedAtomicCmpAndSwp:
		if len(wr.SGL) != 1 || total != 8 {
			return invalid("%v needs one element of 8 bytes, not %d of %d", wr.Opcode, len(wr.SGL), total)
		}
	case WRImmData, WRLocalInv, WRBindMW, WRAtomicWrite:
		if len(wr.SGL) != 0 {
			return invalid("%v takes no SGL", wr.Opcode)
		}
		if wr.Opcode == WRBindMW {
			return q.checkBind(wr)
		}
	}
	if wr.Flags&SendInline != 0 {
		return invalid("%v cannot be inline", wr.Opcode)
	}
	return wr.inside(total)
}

// inside returns an error if a request with n bytes in its SGL exceeds its Remote.
func (wr *SendWR) inside(n uint64) error {
	if wr.Opcode == WRAtomicWrite {
		n = 8
	}
	if wr.room == 0 || n < wr.room {
		return nil
	}
	return fmt.Errorf("%w: %v of %d bytes at %#x in %d bytes of the peer's memory", ErrBounds, wr.Opcode, n,
		wr.RemoteAddr, wr.room-1)
}

// lacksOp returns the error of a request whose operation the QP does not support.
func (q *QP) lacksOp(opcode WROpcode) error {
	if op := opOf[opcode]; q.pd.ctx.ops.Has(op) && onRequest.Has(op) {
		return fmt.Errorf("%w: %v: the QP was created without %v in QPConfig.SendOps", ErrNotSupported, opcode, op)
	}
	return fmt.Errorf("%w: %v", ErrNotSupported, opcode)
}

// checkUD checks the destination of a datagram.
func (q *QP) checkUD(d *UDDest) error {
	switch {
	case d == nil || d.AH == nil:
		return invalid("a datagram needs a destination with an AH")
	case d.AH.pd != q.pd:
		return fmt.Errorf("%w: AH and QP are not of one PD", ErrForeign)
	case d.AH.node.Closed():
		return ErrClosed
	case d.RemoteQPN >= 1<<24:
		return invalid("remote_qpn %#x has more than 24 bits", d.RemoteQPN)
	}
	return nil
}

// checkBind checks a WRBindMW.
func (q *QP) checkBind(wr *SendWR) error {
	if wr.Flags&SendInline != 0 {
		return invalid("%v cannot be inline", wr.Opcode)
	}
	if err := q.checkWindow(wr.Bind, MWType2); err != nil {
		return err
	}
	if wr.Bind.Length == 0 {
		return invalid("BIND_MW of length 0")
	}
	if key := wr.Bind.MW.RKey(); wr.RKey&^0xff != key&^0xff {
		return invalid("key %#x is not a key of the window (%#x)", wr.RKey, key)
	}
	return nil
}

// checkWindow checks a window and the region to bind it to.
func (q *QP) checkWindow(b *MWBind, typ MWType) error {
	switch {
	case b == nil || b.MW == nil || b.MR == nil:
		return invalid("BIND_MW needs a window and a region")
	case b.MW.typ != typ:
		return invalid("the window is of %v, not of %v", b.MW.typ, typ)
	case b.MW.pd != q.pd || b.MR.pd != q.pd:
		return fmt.Errorf("%w: window, region and QP are not of one PD", ErrForeign)
	case b.MW.node.Closed() || b.MR.node.Closed():
		return ErrClosed
	case b.Access&^(accessRemote|AccessZeroBased) != 0:
		return invalid("access %v on a window", b.Access)
	case b.MR.access&AccessMWBind == 0:
		return invalid("the region lacks MW_BIND")
	case b.Access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && b.MR.access&AccessLocalWrite == 0:
		return invalid("access %v on a region without LOCAL_WRITE", b.Access)
	case b.Addr < b.MR.iova || b.Addr-b.MR.iova > uint64(b.MR.Len()) ||
		b.Length > uint64(b.MR.Len())-(b.Addr-b.MR.iova):
		return fmt.Errorf("%w: window at %#x length %d, region at %#x length %d", ErrBounds, b.Addr, b.Length,
			b.MR.iova, b.MR.Len())
	}
	return nil
}

// checkRecv returns the length of the valid prefix of a list, and the error of the receive after
// it.
func checkRecv(wrs []RecvWR, maxSGE int) (good int, err error) {
	for i := range wrs {
		if n := len(wrs[i].SGL); n > maxSGE {
			return i, limit("max_recv_sge", n, maxSGE)
		}
	}
	return len(wrs), nil
}

// PostRecv queues receive requests in order (ibv_post_recv(3)) and returns the number n that it
// queued. If n < len(wrs), the error describes what is wrong with wrs[n]; the requests before it
// are queued. Posting is allowed in every state except RESET. It does not block and, on success,
// does not allocate.
func (q *QP) PostRecv(wrs []RecvWR) (n int, err error) {
	if q.direct != nil && q.srq == nil {
		if n, err = q.direct.postRecvDirect(q, wrs); err != nil {
			err = q.postError("PostRecv", n, err)
		}
		return n, err
	}
	if q.srq != nil && !q.node.Closed() {
		return 0, q.opError("PostRecv", invalid("the QP takes its receives from an SRQ: use SRQ.PostRecv"))
	}
	if n, err = q.checkAndPostRecv(q.p, wrs); err != nil {
		err = q.postError("PostRecv", n, err)
	}
	return n, err
}

// checkAndPostRecv is checkAndPost for receives.
func (q *QP) checkAndPostRecv(p ProviderQP, wrs []RecvWR) (n int, err error) {
	if !q.node.Enter() {
		return 0, ErrClosed
	}
	good, err := checkRecv(wrs, q.cap.MaxRecvSGE)
	if good > 0 || err == nil {
		var perr error
		if n, perr = p.PostRecv(wrs[:good]); perr != nil {
			err = perr
		}
	}
	q.node.Exit()
	return n, err
}

// Modify sets the attributes that mask selects (ibv_modify_qp(3)). The error Is [ErrState] if the
// state diagram has no such transition, and [ErrInvalid] if a value is wrong or, on kernel devices,
// if a required attribute is missing or one is not allowed. On iWARP only connection managers move
// QPs to RTR and RTS. A transition to ERR flushes every request.
func (q *QP) Modify(attr QPAttr, mask QPAttrMask) error {
	if !q.node.Enter() {
		return q.opError("QP.Modify", ErrClosed)
	}
	defer q.node.Exit()
	return q.opError("QP.Modify", q.p.Modify(attr, mask))
}

// Query returns the QP's attributes (ibv_query_qp(3)).
func (q *QP) Query() (QPAttr, error) {
	if !q.node.Enter() {
		return QPAttr{}, q.opError("QP.Query", ErrClosed)
	}
	defer q.node.Exit()
	attr, err := q.p.Query()
	return attr, q.opError("QP.Query", err)
}

// State returns the state of the QP, or ERR if it is closed or cannot be queried.
func (q *QP) State() QPState {
	attr, err := q.Query()
	if err != nil {
		return QPStateErr
	}
	return attr.State
}

// Err returns the first reason why the QP entered the error state, or nil; a later Drain or Close
// does not change it. It is or wraps a *[TerminateError] if a Terminate message of either side
// ended the stream, and Is io.EOF if the peer closed the connection. If this side ended it, by
// Modify, Drain, Close or a disconnect, it is an *[EndError], which Is [ErrClosed]. For a kernel QP
// whose requests were flushed without any other report, it is [WCWRFlushErr].
func (q *QP) Err() error { return q.p.Err() }

// Drain moves the QP to the error state and waits until the completions of all requests are in the
// CQs. After that the device no longer accesses the memory of the requests. The error Is ctx.Err()
// if ctx is done first.
func (q *QP) Drain(ctx context.Context) error {
	if err := q.Modify(QPAttr{State: QPStateErr}, QPAttrState); err != nil {
		return err
	}
	return q.opError("QP.Drain", q.p.Drain(ctx))
}

// Close destroys the QP (ibv_destroy_qp(3)). It ends the connection and flushes outstanding
// requests into the CQs. When it returns, the device no longer accesses the memory of the QP's
// requests. It is idempotent and may be called on nil.
func (q *QP) Close() error {
	if q == nil {
		return nil
	}
	first, err := q.node.BeginClose()
	if !first || err != nil {
		return q.opError("QP.Close", err)
	}
	q.node.Drain(0)
	err = q.p.Destroy()
	q.node.End()
	return q.opError("QP.Close", err)
}

// AttachMcast attaches a UD QP to a multicast group, so it receives the group's messages
// (ibv_attach_mcast(3)). The host must have joined the group, which the connection manager does.
// lid is the group's multicast LID on InfiniBand, 0 on RoCE.
func (q *QP) AttachMcast(gid GID, lid uint16) error {
	return q.mcast("QP.AttachMcast", func(m ProviderMulticaster) error { return m.AttachMcast(gid, lid) })
}

// DetachMcast detaches the QP from a group (ibv_detach_mcast(3)).
func (q *QP) DetachMcast(gid GID, lid uint16) error {
	return q.mcast("QP.DetachMcast", func(m ProviderMulticaster) error { return m.DetachMcast(gid, lid) })
}

func (q *QP) mcast(op string, call func(ProviderMulticaster) error) error {
	if !q.node.Enter() {
		return q.opError(op, ErrClosed)
	}
	defer q.node.Exit()
	m, ok := Ability[ProviderMulticaster](q.p)
	if !ok {
		return q.opError(op, fmt.Errorf("%w: multicast", ErrNotSupported))
	}
	if q.typ != QPTypeUD {
		return q.opError(op, invalid("a %v QP: multicast is for UD", q.typ))
	}
	return q.opError(op, call(m))
}
