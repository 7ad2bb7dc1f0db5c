// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// Types for devices of siw, the kernel's software iWARP. kernel_faults.go lists its faults. All its
// requests are in ledgers.

// vendorSIW is the vendor_id of siw, SIW_VENDOR_ID of the kernel's drivers/infiniband/sw/siw.
const vendorSIW = 0x626d74

// siwInline is siw's max_inline_data, SIW_MAX_INLINE.
const siwInline = 80

// siwOps are the operations of siw. libsiw answers any other with EINVAL, or uses it as an index
// beyond its table of 12 opcodes.
var siwOps = MakeOpSet(OpSend, OpSendInv, OpWrite, OpRead)

// siwContext is an open siw device.
type siwContext struct {
	*kernelContext
	faults faultSet
	offset ibverbs.CQ // see reserveOffset, nil = none
}

func newSiwContext(c *kernelContext, faults faultSet) *siwContext {
	s := &siwContext{kernelContext: c, faults: faults}
	if faults.has(siwOffsetRefused) {
		s.offset = reserveOffset(c.c)
	}
	return s
}

// LocalSinks implements ProviderLocalSinks: siw checks the sink of a Read like any other local
// memory, for IB_ACCESS_LOCAL_WRITE.
func (c *siwContext) LocalSinks() bool { return true }

// Close makes every WaitEvent return, stops reading events, and closes the device.
func (c *siwContext) Close() error {
	if c.offset != nil {
		_ = c.offset.Destroy()
	}
	return c.kernelContext.Close()
}

// CreateCQ creates a completion queue.
func (c *siwContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error) {
	return newLedgerCQ(c.kernelContext, owner, cqe, ch, vector, c.faults.has(siwNeverSolicited))
}

// siwPD is a protection domain of a siw device.
type siwPD struct {
	kernelPD
	faults faultSet
}

// AllocPD allocates a protection domain.
func (c *siwContext) AllocPD() (ProviderPD, error) {
	pd := &siwPD{faults: c.faults}
	if err := pd.create(c.kernelContext); err != nil {
		return nil, err
	}
	return pd, nil
}

// RegMR registers memory. The iova must be its own address.
func (pd *siwPD) RegMR(mem []byte, iova uint64, access AccessFlags) (ProviderMR, error) {
	if pd.faults.has(siwIovaIgnored) && iova != uint64(mapmem.Address(mem)) {
		return nil, fmt.Errorf("%w: the driver of %s ignores the iova: only the memory's own address is possible",
			ErrNotSupported, pd.ctx.dev.info.Name)
	}
	return pd.kernelPD.RegMR(mem, iova, access)
}

// AllocMW is refused, whatever the library would do.
func (pd *siwPD) AllocMW(MWType) (ProviderMW, error) {
	return nil, fmt.Errorf("%w: the driver of %s has no memory windows", ErrNotSupported, pd.ctx.dev.info.Name)
}

// CreateSRQ creates a shared receive queue.
func (pd *siwPD) CreateSRQ(owner *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	s := &ledgerSRQ{least: siwLeast(pd.faults)}
	has, err := s.create(&pd.kernelPD, owner, attr, s)
	if err != nil {
		return nil, SRQAttr{}, err
	}
	return s, has, nil
}

// siwLeast returns the least number of elements of a receive.
func siwLeast(faults faultSet) int {
	if faults.has(siwReceiveEmpty) {
		return 1
	}
	return 0
}
