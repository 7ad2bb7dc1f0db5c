// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// Objects that come back to the provider are its own, or wrap them. Handles see to that; a device that wraps this one may not.

func ownQueues(cfg *ProviderQPConfig) (send, recv *kernelCQ, srq *kernelSRQ, err error) {
	if send, err = Own[*kernelCQ](cfg.SendCQ); err != nil {
		return nil, nil, nil, err
	}
	if recv, err = Own[*kernelCQ](cfg.RecvCQ); err != nil {
		return nil, nil, nil, err
	}
	if cfg.SRQ != nil {
		srq, err = Own[*kernelSRQ](cfg.SRQ)
	}
	return send, recv, srq, err
}

// ownObjects returns how many requests of a list name no objects but the provider's own, and what is wrong with the next.
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
	if _, err := Own[*kernelMW](b.MW.p); err != nil {
		return err
	}
	_, err := Own[*kernelMR](b.MR.p)
	return err
}

// ownMW, ownMR and ownAH are for what has been judged.

func ownMW(b *MWBind) *kernelMW {
	mw, _ := Ability[*kernelMW](b.MW.p)
	return mw
}

func ownMR(b *MWBind) *kernelMR {
	mr, _ := Ability[*kernelMR](b.MR.p)
	return mr
}

func ownAH(d *UDDest) *kernelAH {
	ah, _ := Ability[*kernelAH](d.AH.p)
	return ah
}
