// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// siwQP is a QP of a siw device.
type siwQP struct {
	ledgerQP
	faults faultSet
	// length in bytes of the longest message that siw sends wrongly from an element that crosses a
	// page; see kernel_siw_split.go
	short uint32
	// See kernel_siw_nudge.go.
	heard    atomic.Bool // the peer sent something
	answered atomic.Bool // the peer answered a Read or atomic

	port   uint8       // guarded by modify: as set, because a query does not report it
	access AccessFlags // guarded by modify: as port
}

// siwShort is siw's MAX_HDR_INLINE (fault siwPageTorn).
const siwShort = 32

// CreateQP creates a QP.
func (pd *siwPD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	q := &siwQP{faults: pd.faults}
	q.fences = pd.faults.has(siwFencedRead) || pd.faults.has(siwTurnJams) || pd.faults.has(siwReadOfNothing)
	q.needsDepth = pd.faults.has(siwNoDepthJams)
	q.least = siwLeast(pd.faults)
	want := cfg.Cap
	entries := 1 // per request
	if pd.ctx.ops.Has(OpWriteImm) {
		entries = 2 // a Write and its immediate
	}
	each := entries
	if pd.faults.has(siwPageTorn) { // a Read may be split, and so may an element
		q.short = siwShort
		each = 2
		want.MaxSendSGE = max(want.MaxSendSGE, 2)
	}
	want.MaxSendWR = max(want.MaxSendWR, min(each*want.MaxSendWR+emptyWrites, pd.ctx.attr.MaxQPWR))
	if err := q.create(&pd.kernelPD, owner, cfg, want, q); err != nil {
		return nil, QPCap{}, err
	}
	q.places = max((q.cap.MaxSendWR-emptyWrites)/entries, 1)
	q.cap.MaxSendWR, q.cap.MaxSendSGE = cfg.Cap.MaxSendWR, cfg.Cap.MaxSendSGE
	q.attach()
	return q, q.cap, nil
}

// AnswersEmptyReads implements ProviderQPEmptyReads. Without RFC 7306, siw answers them wrongly
// while it is sending.
func (q *siwQP) AnswersEmptyReads() bool {
	return !q.faults.has(siwReadOfNothing) || q.ctx.ops.Has(OpImm64)
}

// Query queries the kernel. siw never reports the port, nor the access rights as they were set.
func (q *siwQP) Query() (QPAttr, error) {
	ask := q.ledgerQP.Query
	if q.faults.has(siwQueryUnreliable) {
		ask = q.queryDepths
	}
	attr, err := ask()
	if err != nil {
		return QPAttr{}, err
	}
	q.modify.Lock()
	attr.PortNum, attr.AccessFlags = q.port, q.access
	q.modify.Unlock()
	q.known(&attr)
	return attr, nil
}

// queryDepths queries the kernel and swaps the two depths, which siw exchanges.
func (q *siwQP) queryDepths() (QPAttr, error) {
	attr, err := q.ask()
	if err != nil {
		return QPAttr{}, err
	}
	attr.MaxRdAtomic, attr.MaxDestRdAtomic = attr.MaxDestRdAtomic, attr.MaxRdAtomic
	return attr, nil
}

// Moved records a state to which the connection manager has moved the QP and, with RTS, the
// negotiated depth.
func (q *siwQP) Moved(to QPState, reason error) {
	if to == QPStateRTS && q.faults.has(siwQueryUnreliable) {
		q.modify.Lock()
		if !q.gone {
			if attr, err := q.queryDepths(); err == nil {
				q.ord.Store(int32(attr.MaxRdAtomic))
			}
		}
		q.modify.Unlock()
	}
	q.ledgerQP.Moved(to, reason)
}

// Modify checks the change against the state diagram and applies it.
func (q *siwQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	reset := mask&QPAttrState != 0 && attr.State == QPStateReset
	if st := q.qpState(); reset && q.faults.has(siwResetRefused) && st > QPStateInit && !q.initial {
		if err := checkModify(q.typ, TransportIWARP, st, attr.State, mask); err != nil {
			return err
		}
		return fmt.Errorf("%w: the driver does not reset a QP that has been connected", ErrNotSupported)
	}
	if err := q.change(&attr, mask); err != nil {
		return err
	}
	if reset {
		q.heard.Store(false)
		q.answered.Store(false)
	}
	if mask&QPAttrPort != 0 {
		q.port = attr.PortNum
	}
	if mask&QPAttrAccessFlags != 0 {
		q.access = attr.AccessFlags
	}
	return nil
}

// waits corrects the fault siwTurnJams: a Read beyond the depth must not wait in the device's
// queue.
func (q *siwQP) waits(w *ibverbs.Send, reads int) bool {
	ord := int(q.ord.Load())
	return isRead(w) && ord >= 0 && reads >= ord && q.faults.has(siwTurnJams)
}

func (q *siwQP) reportedSend(wc *WC, op WROpcode, _ []SGE) {
	if needsORD(op) && wc.Status == WCSuccess {
		q.answered.Store(true)
	}
	wc.Opcode = op.Completion() // siw distinguishes fewer opcodes
}

func (q *siwQP) reportedRecv(*WC, []SGE) { q.heard.Store(true) }
