// SPDX-License-Identifier: BSD-3-Clause

// Package devices is where the command finds its RDMA devices: it adds the user-space RNIC to those
// of the process, turns the names of the option --device into devices, and describes devices.
package devices

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Auto is the name of the device that the connection manager chooses by the address.
const Auto = "auto"

// WithNIC runs f with a user-space RNIC among the devices of the process, as the last of them. It
// returns the error of f, joined with that of closing the RNIC. If ctx is done, the RNIC is left to
// the end of the process: there may be no time to wait for peers.
func WithNIC(ctx context.Context, cfg usiw.Config, f func(nic *verbs.Device) error) error {
	nic, err := usiw.Register(cfg)
	if err != nil {
		return err
	}
	err = f(nic.Device())
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, nic.Close())
}

// All lists the devices of the process, without those that exist because they were asked for by
// name: nic alone, which is the RNIC of WithNIC, if the others cannot be listed.
func All(nic *verbs.Device) []*verbs.Device {
	all, err := verbs.Devices()
	if err != nil {
		return []*verbs.Device{nic}
	}
	return slices.DeleteFunc(all, func(d *verbs.Device) bool {
		return d != nic && (d.Name() == Plain || strings.HasPrefix(d.Name(), ibcompat.Prefix))
	})
}

// Plain is the user-space RNIC without RFC 7306.
const Plain = "usiw0-plain"

// NICConfig returns the Config of the process's user-space RNIC if the option --device has a value:
// that of usiw0-plain, also if a device wraps it, or else that of usiw0.
func NICConfig(device string) usiw.Config {
	if device[strings.LastIndexByte(device, ':')+1:] != Plain {
		return usiw.Config{}
	}
	return usiw.Config{Name: Plain, Without: ext.Operations}
}

// Choose returns the device of a name, the inverse of Name: nil for Auto. For an unknown name the
// error Is verbs.ErrNoDevice and lists the devices that are present.
func Choose(name string) (*verbs.Device, error) {
	if name == Auto {
		return nil, nil
	}
	return verbs.DeviceByName(name)
}

// Named is the name of a device that can be chosen, and what it is.
type Named struct{ Name, Description string }

// Names lists the names that Choose knows, but for Auto: those of the devices of the process, of
// the user-space RNIC without RFC 7306, and of what wraps them. nic is the RNIC of WithNIC.
func Names(nic *verbs.Device) []Named {
	var names, wrapped []Named
	add := func(name, description string, dev *verbs.Device) {
		names = append(names, Named{name, description})
		if _, err := ibcompat.Wrap(dev, ibcompat.Config{}); err == nil {
			wrapped = append(wrapped, Named{ibcompat.Prefix + name, "the semantics of InfiniBand over " + name})
		}
	}
	for _, d := range All(nic) {
		info := d.Info()
		add(info.Name, info.Provider+", "+info.Transport.String(), d)
	}
	if nic.Name() != Plain {
		add(Plain, "usiw, iWARP, without RFC 7306", nic)
	}
	return append(names, wrapped...)
}

// Name returns the name by which Choose finds a device.
func Name(dev *verbs.Device) string {
	if dev == nil {
		return Auto
	}
	return dev.Name()
}

// Text writes devices as usiw0 (usiw), rxe0 (ibverbs).
func Text(devices []*verbs.Device) string {
	texts := make([]string, len(devices))
	for i, d := range devices {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// UserSpace reports whether a device is a user-space RNIC, or wraps one: it has a connection
// manager of its own and is none of the kernel's.
func UserSpace(dev *verbs.Device) bool {
	_, connects := verbs.Ability[cm.Provider](dev.Provider())
	_, kernel := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider())
	return connects && !kernel
}

// Complete reports whether a device is a user-space RNIC that has every operation of iWARP, or only
// passes on to one.
func Complete(dev *verbs.Device) bool {
	name := dev.Name()
	return UserSpace(dev) && NICConfig(name).Without == 0 && !strings.HasPrefix(name, ibcompat.Prefix)
}
