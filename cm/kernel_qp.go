// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// librdmacm does not create the QPs and knows only their numbers. For each state it returns the
// attributes to set, and the code here sets them.

// bindKernel moves a QP from RESET to INIT.
func bindKernel(end *endpoint, qp *verbs.QP) error {
	attr, mask, err := attrFor(end, verbs.QPStateInit)
	if err != nil {
		return err
	}
	if qp.Type() != verbs.QPTypeUD {
		// The kernel grants no remote Reads while it knows no depth, and on iWARP it leaves out
		// other attributes.
		attr.AccessFlags |= cmprovider.RemoteAccess
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

// raise moves an InfiniBand QP from INIT to RTS.
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

// raiseUD moves a UD QP from its state to RTS. Several IDs may use the QP.
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

// moved notifies a QP's provider of its new state.
func moved(qp *verbs.QP, to verbs.QPState, reason error) {
	if m, ok := verbs.Ability[verbs.ProviderQPMover](qp.Provider()); ok {
		m.Moved(to, reason)
	}
}

// failedOf returns a channel that is closed when the QP fails, or nil if the provider has none.
func failedOf(qp *verbs.QP) <-chan struct{} {
	if w, ok := verbs.Ability[verbs.ProviderQPWatcher](qp.Provider()); ok {
		return w.Failed()
	}
	return nil
}

// toError moves a QP to ERR with a reason, which QP.Err returns. It does nothing to a closed QP.
func toError(qp *verbs.QP, reason error) {
	moved(qp, verbs.QPStateErr, reason)
	_ = qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
}
