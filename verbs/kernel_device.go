// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"sync"
	"syscall"
)

// kernelDevice is a device of the kernel's, named by what stays when the list is read again.
type kernelDevice struct {
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
func kernelMissing() error { return loadLibrary() }

// kernelDevices lists the devices that the kernel has now.
func kernelDevices() ([]*Device, error) {
	if loadLibrary() != nil {
		return nil, nil // as without RDMA in the kernel; kernelMissing tells why
	}
	list, rc := rawDevices()
	switch rc {
	case 0:
	case int(syscall.ENOSYS), int(syscall.ENODEV), int(syscall.ENOENT):
		return nil, nil // a kernel without RDMA
	default:
		return nil, opError("Devices", "", callError("ibv_get_device_list", rc))
	}
	known.Lock()
	defer known.Unlock()
	if known.devices == nil {
		known.devices = make(map[deviceKey]*Device)
	}
	devices := make([]*Device, len(list))
	for i, info := range list {
		key := deviceKey{info.Name, info.NodeGUID}
		if known.devices[key] == nil {
			known.devices[key] = NewDevice(&kernelDevice{info: info})
		}
		devices[i] = known.devices[key]
	}
	return devices, nil
}

func (d *kernelDevice) Info() DeviceInfo { return d.info }

// KernelName implements ProviderKernelDevice.
func (d *kernelDevice) KernelName() string { return d.info.Name }
