// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelDevice is a device of the kernel's, named by what stays when the list is read again.
type kernelDevice struct {
	lib  ibverbs.Library
	info DeviceInfo

	mu     sync.Mutex // guards what follows
	probed bool
	inline int  // the largest max_inline_data of a QP
	writes bool // QPs for Atomic Writes can be made
}

type deviceKey struct {
	name string
	guid GUID
}

// known holds every device that was ever listed, so that it is the same Device each time.
var known struct {
	sync.Mutex
	devices map[deviceKey]*Device
}

// kernelMissing is why there can be no devices of the kernel, nil if there can.
func kernelMissing() error {
	_, err := kernelLibrary()
	return err
}

// kernelDevices lists the devices that the kernel has now.
func kernelDevices() ([]*Device, error) {
	lib, err := kernelLibrary()
	if err != nil {
		return nil, nil // as without RDMA in the kernel; kernelMissing tells why
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

// inlineSearch bounds what is tried. Drivers have up to about 1,000 bytes.
const inlineSearch = 1024

// probe finds out by making QPs what no attribute tells: how many bytes of inline data they can
// have, none on a device on which no QP can be made, and whether they can have Atomic Writes, for
// which the library's driver must know them as the device does. It does so once for each device.
// known is the inline data by the driver, 0 = not known; atomicWrite is what the device says.
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

// maxInline returns how many bytes of inline data QPs like cfg can have.
func maxInline(pd ibverbs.PD, cfg ibverbs.QPConfig, known int) int {
	// try returns what a QP has that was asked for n bytes, -1 if there is none.
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
	// Between what works and what does not.
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
