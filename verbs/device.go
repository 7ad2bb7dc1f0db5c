// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"slices"
	"sync"
)

// DeviceInfo describes a device. The device need not be open.
type DeviceInfo struct {
	Name      string // for example "mlx5_0", "rxe0", "usiw0"
	Provider  string // "usiw" for the user-space RNIC, "ibverbs" for devices of rdma-core
	NodeType  NodeType
	Transport Transport
	NodeGUID  GUID
}

// Device is an RDMA device. A provider makes it; [Devices] lists it while it is registered. All
// methods may be called concurrently.
type Device struct {
	p    ProviderDevice
	info DeviceInfo
	made bool // by DeviceByName

	mu     sync.Mutex // guards shared
	shared *Context
}

// NewDevice returns the device of a provider without registering it.
func NewDevice(p ProviderDevice) *Device { return &Device{p: p, info: p.Info()} }

// Name returns the device's name, "" for nil and for a Device that no provider made.
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.info.Name
}

// Info describes the device.
func (d *Device) Info() DeviceInfo { return d.info }

// Provider returns the provider's object of the device, for connection managers and other code that
// extends a provider.
func (d *Device) Provider() ProviderDevice {
	if d == nil {
		return nil
	}
	return d.p
}

// Open opens the device (ibv_open_device(3)). The caller closes the context.
func (d *Device) Open() (*Context, error) {
	if d == nil || d.p == nil {
		return nil, opError("Open", "", ErrNoDevice)
	}
	return openContext(d, false)
}

// SharedContext returns the context that all users of the device in this process share; the first
// call opens it. The connection manager uses it if no other context is configured, so that
// connections can share protection domains and completion queues. Its Close is an error; it lives
// until the end of the process or of the device, or until CloseShared.
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

// CloseShared closes the shared context, if there is one. It is for programs that no longer use the
// device, or that check what they have left open. The error Is [ErrBusy] if the context has live
// objects. The next call of SharedContext opens a new one.
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

// Register adds a provider's device to [Devices]. If it has no name, or that of another device,
// also of the kernel's, the error Is [ErrInvalid].
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
	// If the kernel's devices cannot be listed, none of them counts as having the name.
	kernel, _ := kernelDevices()
	registry.Lock()
	defer registry.Unlock()
	if byName(kernel, d.info.Name) != nil || byName(registry.devices, d.info.Name) != nil {
		return invalid("a device of this name is registered")
	}
	registry.devices = append(registry.devices, d)
	return nil
}

// Unregister removes d from [Devices], and with it the devices over d that [DeviceByName] has made,
// whose shared contexts are closed unless they are in use. Open contexts stay open.
func Unregister(d *Device) {
	for _, over := range unregister(d) {
		_ = over.CloseShared() // one that is in use belongs to whoever uses it
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

// Devices lists the devices of this process: first those of the kernel, if the program can use
// libibverbs ([RDMACore]), then the registered ones in the order of their registration.
func Devices() ([]*Device, error) {
	devices, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	registry.Lock()
	defer registry.Unlock()
	return append(devices, registry.devices...), nil
}

// RDMACore returns nil if this program can use libibverbs, and with it the devices of the kernel.
// Otherwise it returns an error that Is [ErrNotSupported] and has the reason: for example, the
// library is not installed, or the program was built without cgo. It does not check whether there
// are devices.
func RDMACore() error {
	if err := kernelMissing(); err != nil {
		return noRDMACore{err}
	}
	return nil
}

// noRDMACore is the reason why libibverbs cannot be used.
type noRDMACore struct{ error }

func (e noRDMACore) Is(target error) bool { return target == ErrNotSupported }
func (e noRDMACore) Unwrap() error        { return e.error }
