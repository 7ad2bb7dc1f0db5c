// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// QPs are external to librdmacm: it knows their numbers, the attributes that it wants for each state are fetched from it
// and set here.

// bindKernel moves a QP from RESET to INIT.
func bindKernel(end *endpoint, qp *verbs.QP) error {
	attr, mask, err := attrFor(end, verbs.QPStateInit)
	if err != nil {
		return err
	}
	if qp.Type() != verbs.QPTypeUD {
		// The kernel leaves the right to read out as long as it knows no depth, and other things on iWARP.
		attr.AccessFlags |= remoteAccess
		mask |= verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	}
	if attr.PortNum == 0 {
		attr.PortNum = 1
	}
	return qp.Modify(attr, mask)
}

func attrFor(end *endpoint, to verbs.QPState) (attr verbs.QPAttr, mask verbs.QPAttrMask, err error) {
	err = end.call(func(id rawID) (err error) {
		attr, mask, err = id.qpAttr(to)
		return err
	})
	return attr, mask, end.callError(fmt.Sprintf("rdma_init_qp_attr for %v", to), err)
}

// raise brings an InfiniBand QP from INIT to RTS.
func raise(end *endpoint, qp *verbs.QP, ord, ird int, minRNRTimer uint8) error {
	attr, mask, err := attrFor(end, verbs.QPStateRTR)
	if err != nil {
		return err
	}
	attr.MaxDestRdAtomic, attr.MinRNRTimer = ird, minRNRTimer
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	if attr, mask, err = attrFor(end, verbs.QPStateRTS); err != nil {
		return err
	}
	attr.MaxRdAtomic = ord
	return qp.Modify(attr, mask)
}

// raiseUD brings a UD QP from where it is to RTS. It may serve several IDs.
func raiseUD(qp *verbs.QP) error {
	attr, err := qp.Query()
	if err != nil {
		return err
	}
	if attr.State == verbs.QPStateInit {
		if err := qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState); err != nil {
			return err
		}
		attr.State = verbs.QPStateRTR
	}
	if attr.State == verbs.QPStateRTR {
		return qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN)
	}
	return nil
}

// moved tells the provider of a QP where it has gone.
func moved(qp *verbs.QP, to verbs.QPState, reason error) {
	if m, ok := verbs.Ability[verbs.ProviderQPMover](qp.Provider()); ok {
		m.Moved(to, reason)
	}
}

// failedOf returns a channel that is closed when the QP fails; nil if its provider does not tell.
func failedOf(qp *verbs.QP) <-chan struct{} {
	if w, ok := verbs.Ability[verbs.ProviderQPWatcher](qp.Provider()); ok {
		return w.Failed()
	}
	return nil
}

// toError moves a QP to ERR for a reason; QP.Err returns it. A QP that has been closed needs nothing.
func toError(qp *verbs.QP, reason error) {
	moved(qp, verbs.QPStateErr, reason)
	_ = qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
}
