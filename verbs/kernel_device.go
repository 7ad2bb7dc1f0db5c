// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
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
