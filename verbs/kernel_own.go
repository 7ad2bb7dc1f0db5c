// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// Objects that come back to the provider are its own, or wrap them. Handles see to that; a device
// that wraps this one may not.

// ownPD, ownRegion and ownWindow are a PD, an MR and an MW, of which a driver has types of its own
// around that for all.
type (
	ownPD     interface{ base() *kernelPD }
	ownRegion interface{ base() *kernelMR }
	// bindable returns an error for a window that cannot be bound any more.
	ownWindow interface{ bindable() (*kernelMW, error) }
)

// ownQueues finds the CQs and the SRQ of a QP, which are of the types that its driver has.
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

// ownObjects returns how many requests of a list name no objects but the provider's own, and what
// is wrong with the next.
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

// checkBinding judges what is bound to what.
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

// ownMW, ownMR and ownAH are for what has been judged.

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
