// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// openDevice returns the named device and a function that closes it. It checks that the device can
// be opened. An unknown name is a usage error.
func openDevice(name string) (dev *verbs.Device, closeDevice func() error, err error) {
	if strings.HasPrefix(name, ibcompat.Prefix) {
		return nil, nil, usage("--device %q: rsockets run on the device below it (%s)", name,
			strings.TrimPrefix(name, ibcompat.Prefix))
	}
	nic, err := usiw.Register(usiw.ForDevice(name)) // adds usiw0 to verbs.Devices(), or usiw0-plain
	if err != nil {
		return nil, nil, err
	}
	if name == "auto" {
		return cm.Auto, nic.Close, nil
	}
	if dev, err = verbs.DeviceByName(name); err == nil {
		err = tryDevice(dev)
	}
	if op := new(verbs.OpError); errors.As(err, &op) && errors.Is(err, verbs.ErrNoDevice) {
		err = usage("--device %q: %v", name, op.Err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, nic.Close())
	}
	return dev, nic.Close, nil
}

// tryDevice opens a device and closes it.
func tryDevice(dev *verbs.Device) error {
	ctx, err := dev.Open()
	if err != nil {
		return err
	}
	return ctx.Close()
}
