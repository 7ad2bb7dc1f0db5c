// SPDX-License-Identifier: BSD-3-Clause

// Package devices is where the command finds its RDMA devices: it adds the user-space RNIC to those
// of the process, turns the names of the option --device into devices, and describes devices.
package devices

import (
	"context"
	"errors"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
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

// All lists the devices of the process: nic alone, which is the RNIC of WithNIC, if the others
// cannot be listed.
func All(nic *verbs.Device) []*verbs.Device {
	all, err := verbs.Devices()
	if err != nil {
		return []*verbs.Device{nic}
	}
	return all
}

// Choose returns the device of a name, the inverse of Name. nic is the RNIC of WithNIC, which is
// found by its name even where other devices cannot be listed; for usiw.PlainName it is made with
// usiw.ForDevice. For an unknown name the error Is verbs.ErrNoDevice and lists the known names.
func Choose(name string, nic *verbs.Device) (*verbs.Device, error) {
	switch name {
	case nic.Name():
		return nic, nil
	case Auto:
		return cm.Auto, nil
	}
	kind, below, _ := strings.Cut(name, ":")
	if kind == "ib" && strings.HasPrefix(below, ibcompat.Prefix) {
		return verbs.DeviceByName(name) // which does not have it: there is one ib: device of each device
	}
	if wrap := wraps[kind]; wrap != nil && below != "" && below != Auto {
		dev, err := Choose(below, nic)
		if err != nil {
			return nil, err
		}
		return wrap(dev)
	}
	return verbs.DeviceByName(name)
}

// wraps makes devices of others. What has the key KIND makes KIND:NAME of the device NAME.
var wraps = map[string]func(below *verbs.Device) (*verbs.Device, error){
	"ib": func(below *verbs.Device) (*verbs.Device, error) { return ibcompat.Wrap(below, ibcompat.Config{}) },
}

// AddWrap gives Choose a kind of devices that wrap others: KIND:NAME is what wrap makes of the
// device NAME. It is called before the command line is executed.
func AddWrap(kind string, wrap func(below *verbs.Device) *verbs.Device) {
	wraps[kind] = func(below *verbs.Device) (*verbs.Device, error) { return wrap(below), nil }
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
	if nic.Name() != usiw.PlainName {
		add(usiw.PlainName, "usiw, iWARP, without RFC 7306", nic)
	}
	return append(names, wrapped...)
}

// Name returns the name by which Choose finds a device.
func Name(dev *verbs.Device) string {
	if dev == cm.Auto {
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
	return UserSpace(dev) && usiw.ForDevice(name).Without == 0 && !strings.HasPrefix(name, ibcompat.Prefix)
}
