// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Prefix stands before the name of the device below.
const Prefix = "forward:"

// Wrap returns the device "forward:NAME", which is not registered.
func Wrap(below *verbs.Device) *verbs.Device { return verbs.NewDevice(&device{below}) }

// Register has verbs.DeviceByName make prefix+NAME of each device NAME, by wrap. A process calls it
// once for a prefix.
func Register(prefix string, wrap func(below *verbs.Device) *verbs.Device) {
	verbs.RegisterMaker(prefix, func(name string) (*verbs.Device, error) {
		below, err := verbs.DeviceByName(strings.TrimPrefix(name, prefix))
		if err != nil {
			return nil, err
		}
		return verbs.NewDevice(renamed{wrap(below).Provider(), name}), nil
	})
}

// renamed is a device with another name.
type renamed struct {
	verbs.ProviderDevice
	name string
}

func (d renamed) Info() verbs.DeviceInfo {
	info := d.ProviderDevice.Info()
	info.Name = d.name
	return info
}

// Unwrap has the connection manager.
func (d renamed) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

// device is verbs.ProviderDevice and cm.Provider.
type device struct{ below *verbs.Device }

func (d *device) Info() verbs.DeviceInfo {
	info := d.below.Info()
	info.Name, info.Provider = Prefix+info.Name, "forward"
	return info
}

// Unwrap tells what kind of device it is.
func (d *device) Unwrap() verbs.ProviderDevice { return d.below.Provider() }

func (d *device) Open(*verbs.Context) (verbs.ProviderContext, error) {
	in, err := d.below.Open()
	if err != nil {
		return nil, err
	}
	return &Context{In: in}, nil
}

// Resolve implements cm.Provider.
func (d *device) Resolve(ctx context.Context, address string, cfg cm.Config) (cm.Route, error) {
	r, err := Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Listen implements cm.Provider.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	ln, err := Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return ln, nil
}
