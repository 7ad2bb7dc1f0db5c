// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/mapmem"
)

type kernelMR struct {
	ctx *kernelContext
	c   ibverbs.MR
	// The keys may be read at any time, even once the region is closed and c is gone.
	lkey, rkey atomic.Uint32
}

// learn stores the keys, which registration assigns and reregistration may change.
func (m *kernelMR) learn(keys ibverbs.Keys) {
	m.lkey.Store(keys.LKey)
	m.rkey.Store(keys.RKey)
}

// RegMR registers memory.
func (pd *kernelPD) RegMR(mem []byte, iova uint64, access AccessFlags) (ProviderMR, error) {
	m := new(kernelMR)
	if err := m.register(pd, mem, iova, access); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *kernelMR) register(pd *kernelPD, mem []byte, iova uint64, access AccessFlags) error {
	m.ctx = pd.ctx
	addr := mapmem.Address(mem)
	if err := checkIova(addr, iova); err != nil {
		return err
	}
	if err := pd.ctx.counts.mr.add(); err != nil {
		return err
	}
	// The library retains the address, not the pointer: the handle has pinned the memory.
	c, err := pd.c.RegMR(addr, len(mem), iova, kernelAccess(access))
	runtime.KeepAlive(mem)
	if err != nil {
		pd.ctx.counts.mr.remove()
		return pd.ctx.regError("ibv_reg_mr", err, len(mem), access)
	}
	m.c = c
	m.learn(c.Keys())
	return nil
}

func (m *kernelMR) base() *kernelMR { return m }

// kernelAccess removes the flags that the kernel must not see. A zero-based region is one with iova
// 0, which every driver that supports an iova can register, while few know the flag. AllocMR has
// already taken care of huge pages.
func kernelAccess(access AccessFlags) uint32 {
	return uint32(access &^ (AccessZeroBased | AccessHugeTLB))
}

// checkIova refuses an iova that the kernel would refuse without giving a reason.
func checkIova(addr uintptr, iova uint64) error {
	if page := uint64(os.Getpagesize()) - 1; iova&page != uint64(addr)&page {
		// ib_uverbs_reg_mr refuses it on every device.
		return fmt.Errorf("%w: the kernel wants iova %#x and the memory at %#x to have the same offset in a page",
			ErrNotSupported, iova, addr)
	}
	return nil
}

// regError adds an explanation to two errnos of registration that say little.
func (c *kernelContext) regError(call string, err error, n int, access AccessFlags) error {
	err = callError(call, err)
	if access&AccessOnDemand != 0 && errors.Is(err, syscall.EINVAL) && !c.hasODP() {
		return fmt.Errorf("%w: the device has no on-demand paging: %w", ErrNotSupported, err)
	}
	var lim unix.Rlimit
	if errors.Is(err, syscall.ENOMEM) && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil &&
		lim.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("%w: %d bytes; the limit of locked memory, ulimit -l, is %d", err, n, lim.Cur)
	}
	return err
}

// LKey returns the local key.
func (m *kernelMR) LKey() uint32 { return m.lkey.Load() }

// RKey returns the remote key.
func (m *kernelMR) RKey() uint32 { return m.rkey.Load() }

// Dereg deregisters the region.
func (m *kernelMR) Dereg() error {
	err := callError("ibv_dereg_mr", m.c.Dereg())
	if err == nil {
		m.ctx.counts.mr.remove()
	}
	return err
}

// Rereg changes the region in place.
func (m *kernelMR) Rereg(flags ReregFlags, pd ProviderPD, mem []byte, iova uint64, access AccessFlags) error {
	var to ibverbs.PD
	var addr uintptr
	var length int
	var acc uint32
	if flags&ReregPD != 0 {
		own, err := Own[ownPD](pd)
		if err != nil {
			return err
		}
		to = own.base().c
	}
	if flags&ReregTranslation != 0 {
		addr, length = mapmem.Address(mem), len(mem)
		if iova != uint64(addr) {
			return fmt.Errorf("%w: ibv_rereg_mr has no iova", ErrNotSupported)
		}
	}
	if flags&ReregAccess != 0 {
		acc = kernelAccess(access)
	}
	// The result is 0, or one of five negative numbers with errno set. Only the one for invalid
	// input leaves the region unchanged.
	result, err := m.c.Rereg(int(flags), to, addr, length, acc)
	runtime.KeepAlive(mem)
	err = callError("ibv_rereg_mr", err)
	switch {
	case result == 0:
		m.learn(m.c.Keys())
		return nil
	case result == ibverbs.ReregInput, errors.Is(err, ErrNotSupported):
		return err
	case result == ibverbs.ReregDontFork:
		return fmt.Errorf("the new memory could not be kept from fork: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrMRLost, err)
}

// RegDmabufMR registers another device's memory.
func (pd *kernelPD) RegDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (ProviderMR, error) {
	m := &kernelMR{ctx: pd.ctx}
	if err := pd.ctx.counts.mr.add(); err != nil {
		return nil, err
	}
	c, err := pd.c.RegDmabufMR(offset, length, iova, fd, kernelAccess(access))
	if err != nil {
		pd.ctx.counts.mr.remove()
		return nil, pd.ctx.regError("ibv_reg_dmabuf_mr", err, int(length), access)
	}
	m.c = c
	m.learn(c.Keys())
	return m, nil
}
