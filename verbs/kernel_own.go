// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// Objects passed back to the provider must be its own, or wrap its own. Handles ensure that, but a
// device that wraps this one may not.

// ownPD, ownRegion and ownWindow are implemented by the common PD, MR and MW and by drivers' types
// around them.
type (
	ownPD     interface{ base() *kernelPD }
	ownRegion interface{ base() *kernelMR }
	// bindable returns an error for a window that can no longer be bound.
	ownWindow interface{ bindable() (*kernelMW, error) }
)

// ownQueues returns the CQs and the SRQ of a QP as the types of its driver.
func ownQueues[CQ, SRQ any](cfg *ProviderQPConfig) (send, recv CQ, srq SRQ, err error) {
	if send, err = Own[CQ](cfg.SendCQ); err != nil {
		return send, recv, srq, err
	}
	if recv, err = Own[CQ](cfg.RecvCQ); err != nil {
		return send, recv, srq, err
	}
	if cfg.SRQ != nil {
		srq, err = Own[SRQ](cfg.SRQ)
	}
	return send, recv, srq, err
}

// ownObjects returns how many requests at the head of a list refer only to objects of this
// provider, and the error of the next request.
func (q *kernelQP) ownObjects(wrs []SendWR) (n int, err error) {
	for i := range wrs {
		switch w := &wrs[i]; {
		case w.Opcode == WRBindMW:
			err = checkBinding(w.Bind)
		case q.send.ud:
			_, err = Own[*kernelAH](w.UD.AH.p)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// checkBinding checks the window and the region of a bind.
func checkBinding(b *MWBind) error {
	w, err := Own[ownWindow](b.MW.p)
	if err != nil {
		return err
	}
	if _, err := w.bindable(); err != nil {
		return err
	}
	_, err = Own[ownRegion](b.MR.p)
	return err
}

// ownMW, ownMR and ownAH return objects that have been checked.

func ownMW(b *MWBind) *kernelMW {
	w, _ := Ability[ownWindow](b.MW.p)
	mw, _ := w.bindable()
	return mw
}

func ownMR(b *MWBind) *kernelMR {
	mr, _ := Ability[ownRegion](b.MR.p)
	return mr.base()
}

func ownAH(d *UDDest) *kernelAH {
	ah, _ := Ability[*kernelAH](d.AH.p)
	return ah
}
