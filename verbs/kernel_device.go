// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelDevice is a kernel device, identified by what stays the same when the list is read again.
type kernelDevice struct {
	lib  ibverbs.Library
	info DeviceInfo

	mu     sync.Mutex // guards the fields below
	probed bool
	inline int  // largest max_inline_data of a QP
	writes bool // QPs can be created with Atomic Writes
}

type deviceKey struct {
	name string
	guid GUID
}

// known holds every device ever listed, so that the same device always has the same Device.
var known struct {
	sync.Mutex
	devices map[deviceKey]*Device
}

// kernelMissing returns why kernel devices are unavailable, nil if they are available.
func kernelMissing() error {
	_, err := kernelLibrary()
	return err
}

// kernelDevices lists the kernel devices currently present.
func kernelDevices() ([]*Device, error) {
	lib, err := kernelLibrary()
	if err != nil {
		return nil, nil // as on a kernel without RDMA; kernelMissing reports why
	}
	list, err := lib.Devices()
	switch err {
	case nil:
	case syscall.ENOSYS, syscall.ENODEV, syscall.ENOENT:
		return nil, nil // a kernel without RDMA
	default:
		return nil, opError("Devices", "", callError("ibv_get_device_list", err))
	}
	known.Lock()
	defer known.Unlock()
	if known.devices == nil {
		known.devices = make(map[deviceKey]*Device)
	}
	devices := make([]*Device, len(list))
	for i := range list {
		info := publicDevice(&list[i])
		key := deviceKey{info.Name, info.NodeGUID}
		if known.devices[key] == nil {
			known.devices[key] = NewDevice(&kernelDevice{lib: lib, info: info})
		}
		devices[i] = known.devices[key]
	}
	return devices, nil
}

func (d *kernelDevice) Info() DeviceInfo { return d.info }

// KernelName implements ProviderKernelDevice.
func (d *kernelDevice) KernelName() string { return d.info.Name }

// inlineSearch is the largest size of inline data that is tried. Drivers support up to about 1,000
// bytes.
const inlineSearch = 1024

// probe creates QPs to find out what no attribute says: how many bytes of inline data a QP supports
// (0 if the device cannot create QPs), and whether QPs support Atomic Writes, which both the device
// and the library's driver must know. It does so once per device. known is the driver's limit of
// inline data, 0 if unknown; atomicWrite is whether the device advertises Atomic Writes.
func (d *kernelDevice) probe(c ibverbs.Context, known int, atomicWrite bool) (inline int, ops OpSet, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.probed || atomicWrite && !d.writes {
		if err := d.tryQPs(c, known, atomicWrite); err != nil {
			return 0, 0, err
		}
	}
	if atomicWrite && d.writes {
		ops = MakeOpSet(OpAtomicWrite)
	}
	return d.inline, ops, nil
}

func (d *kernelDevice) tryQPs(c ibverbs.Context, known int, atomicWrite bool) (failed error) {
	pd, err := c.AllocPD()
	if err != nil {
		return callError("ibv_alloc_pd", err)
	}
	defer func() { failed = errors.Join(failed, callError("ibv_dealloc_pd", pd.Dealloc())) }()
	cq, _, err := c.CreateCQ(ibverbs.CQConfig{CQE: 1})
	if err != nil {
		return callError("ibv_create_cq", err)
	}
	defer func() { failed = errors.Join(failed, callError("ibv_destroy_cq", cq.Destroy())) }()
	cfg := ibverbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: uint32(QPTypeRC),
		Cap: ibverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	d.inline = maxInline(pd, cfg, known)
	if cfg.AtomicWrite = atomicWrite; atomicWrite {
		qp, _, _, err := pd.CreateQP(cfg)
		if d.writes = err == nil; d.writes {
			_ = qp.Destroy()
		}
	}
	d.probed = true
	return nil
}

// maxInline returns how many bytes of inline data QPs like cfg support.
func maxInline(pd ibverbs.PD, cfg ibverbs.QPConfig, known int) int {
	// try returns the inline capacity of a QP created with n bytes, -1 if it cannot be created.
	try := func(n int) int {
		cfg.Cap.MaxInlineData = uint32(n)
		qp, has, _, err := pd.CreateQP(cfg)
		if err != nil {
			return -1
		}
		_ = qp.Destroy()
		return int(has.MaxInlineData)
	}
	if known > 0 && try(known) >= 0 {
		return known
	}
	most := try(0)
	if most < 0 {
		return 0
	}
	// Search between a size that works and one that does not.
	for bad := max(inlineSearch, most) + 1; bad-most > 1; {
		middle := (most + bad) / 2
		if n := try(middle); n >= 0 {
			most = max(middle, min(n, bad-1))
		} else {
			bad = middle
		}
	}
	return most
}
