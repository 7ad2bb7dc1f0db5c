// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"slices"
	"sync"
)

// DeviceInfo describes a device, whether or not it is open.
type DeviceInfo struct {
	Name      string // for example "mlx5_0", "rxe0", "usiw0"
	Provider  string // "usiw" for the user-space RNIC, "ibverbs" for devices of rdma-core
	NodeType  NodeType
	Transport Transport
	NodeGUID  GUID
}

// Device is an RDMA device. [Devices] lists it while it is registered. All methods may be called
// concurrently.
type Device struct {
	p    ProviderDevice
	info DeviceInfo
	made bool // by DeviceByName

	mu     sync.Mutex // guards shared
	shared *Context
}

// NewDevice returns a provider's device without registering it.
func NewDevice(p ProviderDevice) *Device { return &Device{p: p, info: p.Info()} }

// Name returns the device's name, or "" for nil and for a Device without a provider.
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.info.Name
}

// Info returns the description of the device.
func (d *Device) Info() DeviceInfo { return d.info }

// Provider returns the provider's device object, for connection managers and other code that
// extends a provider.
func (d *Device) Provider() ProviderDevice {
	if d == nil {
		return nil
	}
	return d.p
}

// Open opens the device (ibv_open_device(3)). The caller must close the context.
func (d *Device) Open() (*Context, error) {
	if d == nil || d.p == nil {
		return nil, opError("Open", "", ErrNoDevice)
	}
	return openContext(d, false)
}

// SharedContext returns the context that all users of the device in this process share; the first
// call opens it. The connection manager uses it unless another context is configured, so
// connections can share protection domains and completion queues. Calling its Close is an error: it
// lives until CloseShared, or until the device or the process ends.
func (d *Device) SharedContext() (*Context, error) {
	if d == nil || d.p == nil {
		return nil, opError("SharedContext", "", ErrNoDevice)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == nil || d.shared.node.Closed() {
		c, err := openContext(d, true)
		if err != nil {
			return nil, err
		}
		c.node.Keep()
		d.shared = c
	}
	return d.shared, nil
}

// CloseShared closes the shared context, if any, for programs that no longer use the device or that
// check for leaked objects. The error Is [ErrBusy] if the context has live objects. The next call
// to SharedContext opens a new one.
func (d *Device) CloseShared() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == nil {
		return nil
	}
	return d.shared.end()
}

var registry struct {
	sync.Mutex
	devices []*Device
}

// Register adds a provider's device to [Devices]. The error Is [ErrInvalid] if its name is empty or
// already taken, kernel devices included.
func Register(p ProviderDevice) (*Device, error) {
	d := NewDevice(p)
	if err := register(d); err != nil {
		return nil, opError("Register", d.info.Name, err)
	}
	return d, nil
}

func register(d *Device) error {
	if d.info.Name == "" {
		return invalid("the device has no name")
	}
	// If kernel devices cannot be listed, their names do not conflict.
	kernel, _ := kernelDevices()
	registry.Lock()
	defer registry.Unlock()
	if byName(kernel, d.info.Name) != nil || byName(registry.devices, d.info.Name) != nil {
		return invalid("a device of this name is registered")
	}
	registry.devices = append(registry.devices, d)
	return nil
}

// Unregister removes d from [Devices], together with the devices that [DeviceByName] created on top
// of d. It closes their shared contexts unless they are in use. Open contexts stay open.
func Unregister(d *Device) {
	for _, over := range unregister(d) {
		_ = over.CloseShared() // ErrBusy: its users close it
	}
}

// unregister returns the devices that were removed with d.
func unregister(d *Device) (over []*Device) {
	registry.Lock()
	defer registry.Unlock()
	if !slices.Contains(registry.devices, d) {
		return nil
	}
	registry.devices = slices.DeleteFunc(registry.devices, func(o *Device) bool {
		if o.made && o.isOver(d.info.Name) {
			over = append(over, o)
			return true
		}
		return o == d
	})
	return over
}

// isOver reports whether d wraps the device with this name.
func (d *Device) isOver(name string) bool {
	for p := d.p; ; {
		outer, wraps := p.(interface{ Unwrap() ProviderDevice })
		if !wraps {
			return false
		}
		if p = outer.Unwrap(); p.Info().Name == name {
			return true
		}
	}
}

func byName(devices []*Device, name string) *Device {
	if i := slices.IndexFunc(devices, func(d *Device) bool { return d.info.Name == name }); i >= 0 {
		return devices[i]
	}
	return nil
}

// Devices returns the devices of this process: first the kernel devices, if the program can use
// libibverbs ([RDMACore]), then the registered devices in order of registration.
func Devices() ([]*Device, error) {
	devices, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	registry.Lock()
	defer registry.Unlock()
	return append(devices, registry.devices...), nil
}

// RDMACore returns nil if this program can use libibverbs, and therefore kernel devices. Otherwise
// the error Is [ErrNotSupported] and gives the reason: for example, the library is not installed,
// or the program was built without cgo. It does not check whether any device exists.
func RDMACore() error {
	if err := kernelMissing(); err != nil {
		return noRDMACore{err}
	}
	return nil
}

// noRDMACore wraps the reason why libibverbs cannot be used.
type noRDMACore struct{ error }

func (e noRDMACore) Is(target error) bool { return target == ErrNotSupported }
func (e noRDMACore) Unwrap() error        { return e.error }
