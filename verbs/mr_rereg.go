// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"runtime"
)

// ErrMRLost: a reregistration failed after the old registration was destroyed. The region no longer
// gives access, and can only be closed.
var ErrMRLost = errors.New("memory region lost by a failed reregistration")

// ReregFlags selects what [MR.Rereg] changes.
type ReregFlags uint8

const (
	ReregTranslation ReregFlags = 1 << 0 // IBV_REREG_MR_CHANGE_TRANSLATION: the memory
	ReregPD          ReregFlags = 1 << 1 // IBV_REREG_MR_CHANGE_PD
	ReregAccess      ReregFlags = 1 << 2 // IBV_REREG_MR_CHANGE_ACCESS
)

// String lists the flags by their C names without IBV_REREG_MR_.
func (f ReregFlags) String() string {
	return flagText(uint64(f), []string{"CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS"})
}

// Rereg changes a region in place (ibv_rereg_mr(3)). The flags select which of pd, buf and access
// to change. The keys may change. No other method of the region may be running, and no request may
// be using it. New memory is pinned and addressed as in RegMR; the old memory is released. If the
// error Is [ErrMRLost] the region can only be closed; after any other error it is unchanged.
func (m *MR) Rereg(flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	const op = "MR.Rereg"
	if !m.node.Enter() {
		return opError(op, m.pd.ctx.dev.Name(), ErrClosed)
	}
	defer m.node.Exit()
	return opError(op, m.pd.ctx.dev.Name(), m.rereg(flags, pd, buf, access))
}

func (m *MR) rereg(flags ReregFlags, pd *PD, buf []byte, access AccessFlags) error {
	r, ok := Ability[ProviderMRReregisterer](m.p)
	if !ok {
		return fmt.Errorf("%w: changing a region in place", ErrNotSupported)
	}
	if flags == 0 || flags&^(ReregTranslation|ReregPD|ReregAccess) != 0 {
		return invalid("flags %v", flags)
	}
	switch {
	case flags&ReregPD == 0:
		pd = m.pd
	case pd == nil:
		return invalid("no PD")
	case pd.ctx != m.pd.ctx:
		return fmt.Errorf("%w: the PD is of another context", ErrForeign)
	}
	if flags&ReregAccess == 0 {
		access = m.access
	}
	iova, length := m.iova, m.Len()
	if flags&ReregTranslation == 0 {
		buf = m.buf
	} else {
		if len(buf) == 0 {
			return invalid("empty buffer")
		}
		iova, length = iovaOf(buf, access), len(buf)
	}
	if err := pd.checkMR(length, access); err != nil {
		return err
	}
	// The PD that the device associates with the region must be its parent at all times, whether or
	// not the change succeeds.
	if pd != m.pd {
		if err := m.node.Adopt(&pd.node); err != nil {
			return err
		}
	}
	release := m.release
	if flags&ReregTranslation != 0 {
		pinner := new(runtime.Pinner)
		pinner.Pin(&buf[0])
		release = pinner.Unpin
	}
	if err := r.Rereg(flags, pd.p, buf, iova, access); err != nil {
		if flags&ReregTranslation != 0 {
			release()
		}
		if pd != m.pd {
			m.node.Leave(&pd.node)
		}
		return err
	}
	if flags&ReregTranslation != 0 {
		m.release()
		m.foreign = 0
	}
	if pd != m.pd {
		m.node.Leave(&m.pd.node)
	}
	m.pd, m.buf, m.iova, m.access, m.release = pd, buf, iova, access, release
	m.place()
	return nil
}
