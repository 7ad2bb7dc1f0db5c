// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "github.com/goverbs/goverbs/internal/ibverbs"

// rxeQP is a QP of rxe.
type rxeQP struct {
	ledgerQP
	rxe *rxeContext
	pd  ibverbs.PD // in which rxe looks for all keys, those of an SRQ's receives too
}

// CreateQP makes a QP.
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

// reportedSend gives a failed send the status that it has on InfiniBand.
func (q *rxeQP) reportedSend(wc *WC, op WROpcode, sgl []SGE) {
	if op == WRBindMW || op == WRLocalInv {
		q.windows.reported(&q.ledgerQP, wc.ID, wc.Status)
	}
	faults := q.rxe.faults
	switch {
	case wc.Status == WCRemOpErr && isSend(op) && faults.has(rxeLengthStatus):
		// The peer's rxe says so of a message that is longer than the receive, for which this is
		// the status, and of a receive whose memory is wrong, which nothing tells apart.
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

// reportedRecv takes the flag from a receive that has no header in its memory, and gives one that
// has failed the status that it has on InfiniBand.
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
