// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Types for devices of rxe, the kernel's software RoCE. kernel_faults.go lists its faults. All its
// requests are in ledgers.

// vendorRXE is the vendor_id of rxe, RXE_VENDOR_ID of the kernel's drivers/infiniband/sw/rxe.
const vendorRXE = 0xffffff

// rxeInline is rxe's max_inline_data, RXE_MAX_INLINE_DATA.
const rxeInline = 512

// rxeWithInv is the flag with which rxe reports an invalidated key: the kernel's
// IB_WC_WITH_INVALIDATE (fault rxeWrongFlag).
const rxeWithInv = 1 << 2

// rxeContext is an open rxe device.
type rxeContext struct {
	*kernelContext
	faults  faultSet
	regions rxeRegions
	windows windowLedger
}

func newRXEContext(c *kernelContext, faults faultSet) ProviderContext {
	if faults.has(rxeWrongFlag) {
		c.withInv = rxeWithInv
	}
	return &rxeContext{kernelContext: c, faults: faults}
}

// CreateCQ creates a completion queue.
func (c *rxeContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error) {
	return newLedgerCQ(c.kernelContext, owner, cqe, ch, vector, false)
}

// rxePD is a protection domain of an rxe device.
type rxePD struct {
	kernelPD
	rxe *rxeContext
}

// AllocPD allocates a protection domain.
func (c *rxeContext) AllocPD() (ProviderPD, error) {
	pd := &rxePD{rxe: c}
	if err := pd.create(c.kernelContext); err != nil {
		return nil, err
	}
	return pd, nil
}

// rxeMR is a memory region of an rxe device.
type rxeMR struct {
	kernelMR
	rxe *rxeContext
}

// RegMR registers memory.
func (pd *rxePD) RegMR(mem []byte, iova uint64, access AccessFlags) (ProviderMR, error) {
	if access&AccessOnDemand != 0 && pd.rxe.faults.has(rxeOnDemandMisplaced) && pd.ctx.hasODP() {
		return nil, fmt.Errorf("%w: rxe places the bytes of on-demand paging wrongly", ErrNotSupported)
	}
	m := &rxeMR{rxe: pd.rxe}
	if err := m.register(&pd.kernelPD, mem, iova, access); err != nil {
		return nil, err
	}
	pd.rxe.regions.add(m.LKey(),
		rxeRegion{pd: pd.c, start: iova, length: uint64(len(mem)), write: access&AccessLocalWrite != 0})
	return m, nil
}

// Dereg deregisters the region.
func (m *rxeMR) Dereg() error {
	region := m.rxe.regions.remove(m.LKey()) // before the key can be reused
	err := m.kernelMR.Dereg()
	if err != nil {
		m.rxe.regions.add(m.LKey(), region)
		if errors.Is(err, syscall.EINVAL) && m.rxe.faults.has(rxeBusyInvalid) {
			err = fmt.Errorf("%w: windows are bound to the region: %w", ErrBusy, err)
		}
	}
	return err
}

// AllocMW allocates a window.
func (pd *rxePD) AllocMW(t MWType) (ProviderMW, error) {
	if t != MWType2 || !pd.rxe.faults.has(rxeWindowKeepsQP) {
		return pd.kernelPD.AllocMW(t)
	}
	w, err := pd.rxe.windows.alloc(&pd.kernelPD)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// CreateSRQ creates a shared receive queue.
func (pd *rxePD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := new(ledgerSRQ)
	has, err := s.create(&pd.kernelPD, owner, attr, s)
	if err != nil {
		return nil, SRQAttr{}, err
	}
	if pd.rxe.faults.has(rxeReceiveStatus) {
		s.sgls = newSGLStore(has.MaxWR, has.MaxSGE)
	}
	return s, has, nil
}
