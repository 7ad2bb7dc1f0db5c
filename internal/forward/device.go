// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Prefix precedes the name of the device below.
const Prefix = "forward:"

// Wrap returns the device "forward:NAME" for the device NAME. It does not register it.
func Wrap(below *verbs.Device) *verbs.Device { return verbs.NewDevice(&device{below}) }

// Register makes verbs.DeviceByName resolve prefix+NAME to wrap of the device NAME. A process may
// call it once per prefix.
func Register(prefix string, wrap func(below *verbs.Device) *verbs.Device) {
	verbs.RegisterMaker(prefix, func(name string) (*verbs.Device, error) {
		below, err := verbs.DeviceByName(strings.TrimPrefix(name, prefix))
		if err != nil {
			return nil, err
		}
		return verbs.NewDevice(renamed{wrap(below).Provider(), name}), nil
	})
}

// renamed is a device under another name.
type renamed struct {
	verbs.ProviderDevice
	name string
}

func (d renamed) Info() verbs.DeviceInfo {
	info := d.ProviderDevice.Info()
	info.Name = d.name
	return info
}

// Unwrap gives access to the connection manager.
func (d renamed) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

// device implements verbs.ProviderDevice and cm.Provider.
type device struct{ below *verbs.Device }

func (d *device) Info() verbs.DeviceInfo {
	info := d.below.Info()
	info.Name, info.Provider = Prefix+info.Name, "forward"
	return info
}

// Unwrap shows what kind of device is below.
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
