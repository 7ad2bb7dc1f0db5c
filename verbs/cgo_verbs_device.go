// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

/*
#cgo LDFLAGS: -libverbs
#include "cgo_verbs.h"
*/
import "C"

import (
	"sync"
	"syscall"
	"unsafe"
)

// cgoDevice is a device of the kernel's, named by what stays when the list is read again.
type cgoDevice struct {
	info DeviceInfo

	mu     sync.Mutex // guards what follows
	probed bool
	inline int // the largest max_inline_data of a QP
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

// kernelDevices lists the devices that the kernel has now.
func kernelDevices() ([]*Device, error) {
	var list *C.struct_gv_device
	var n C.int
	switch rc := C.gv_devices(&list, &n); {
	case rc == C.int(syscall.ENOSYS), rc == C.int(syscall.ENODEV), rc == C.int(syscall.ENOENT):
		return nil, nil // a kernel without RDMA
	case rc != 0:
		return nil, opError("Devices", "", callError("ibv_get_device_list", rc))
	}
	defer C.free(unsafe.Pointer(list))
	known.Lock()
	defer known.Unlock()
	if known.devices == nil {
		known.devices = make(map[deviceKey]*Device)
	}
	devices := make([]*Device, n)
	for i, d := range unsafe.Slice(list, n) {
		info := DeviceInfo{Name: C.GoString(&d.name[0]), Provider: "ibverbs", NodeType: NodeType(d.node_type),
			Transport: Transport(d.transport), NodeGUID: GUID(d.guid)}
		key := deviceKey{info.Name, info.NodeGUID}
		if known.devices[key] == nil {
			known.devices[key] = NewDevice(&cgoDevice{info: info})
		}
		devices[i] = known.devices[key]
	}
	return devices, nil
}

func (d *cgoDevice) Info() DeviceInfo { return d.info }
