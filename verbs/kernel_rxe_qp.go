// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

// rxeQP is a QP of an rxe device.
type rxeQP struct {
	ledgerQP
	rxe *rxeContext
	pd  ibverbs.PD // rxe looks up all keys in it, even keys of an SRQ's receives
}

// CreateQP creates a QP.
func (pd *rxePD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	q := &rxeQP{rxe: pd.rxe, pd: pd.c}
	faults := pd.rxe.faults
	q.fences, q.needsDepth, q.flushTime = faults.has(rxeFenceLost), faults.has(rxeNoDepthJams), flushLimit
	if faults.has(rxeWindowKeepsQP) {
		q.windows = &pd.rxe.windows
	}
	if err := q.create(&pd.kernelPD, owner, cfg, cfg.Cap, q); err != nil {
		return nil, QPCap{}, err
	}
	if faults.has(rxeSourceStatus) {
		q.sends.sgls = newSGLStore(q.cap.MaxSendWR, q.cap.MaxSendSGE)
	}
	if faults.has(rxeReceiveStatus) && q.srq == nil {
		q.recvs.sgls = newSGLStore(q.cap.MaxRecvWR, q.cap.MaxRecvSGE)
	}
	q.attach()
	return q, q.cap, nil
}

func isSend(op WROpcode) bool { return op == WRSend || op == WRSendWithImm || op == WRSendWithInv }

// reportedSend gives a failed send the status that InfiniBand specifies.
func (q *rxeQP) reportedSend(wc *WC, op WROpcode, sgl []SGE) {
	if op == WRBindMW || op == WRLocalInv {
		q.windows.reported(&q.ledgerQP, wc.ID, wc.Status)
	}
	faults := q.rxe.faults
	switch {
	case wc.Status == WCRemOpErr && isSend(op) && faults.has(rxeLengthStatus):
		// The peer's rxe reports this both for a message longer than the receive, for which this is
		// the right status, and for a receive whose memory is invalid. The two cannot be told
		// apart.
		wc.Status = WCRemInvReqErr
	case wc.Status != WCLocQPOpErr:
	case op == WRLocalInv && faults.has(rxeInvalidateStatus):
		wc.Status = WCMWBindErr
	case faults.has(rxeSourceStatus):
		if why := q.rxe.regions.deny(q.pd, sgl, needsORD(op)); why != nil {
			wc.Status = WCLocProtErr
			q.blamed.denied[0].Store(why)
		}
	}
}

// reportedRecv clears the GRH flag of a receive whose memory holds no header, and gives a failed
// receive the status that InfiniBand specifies.
func (q *rxeQP) reportedRecv(wc *WC, sgl []SGE) {
	faults := q.rxe.faults
	if q.typ != QPTypeUD && faults.has(rxeWrongFlag) {
		wc.Flags &^= WCGRH
	}
	if wc.Status == WCSuccess && wc.Flags&WCWithInv != 0 {
		q.windows.invalidated(wc.InvalidatedRKey)
	}
	if wc.Status != WCLocQPOpErr || !faults.has(rxeReceiveStatus) {
		return
	}
	if why := q.rxe.regions.deny(q.pd, sgl, true); why != nil {
		wc.Status = WCLocProtErr
		q.blamed.denied[1].Store(why)
	} else {
		wc.Status = WCLocLenErr
	}
}
