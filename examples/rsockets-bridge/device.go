// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/compat/ibcompat"
	_ "github.com/goverbs/goverbs/usiw" // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

// findDevice returns the named device, which it has opened once to see that it can be. An unknown
// name is a usage error.
func findDevice(name string) (dev *verbs.Device, err error) {
	if strings.HasPrefix(name, ibcompat.Prefix) {
		return nil, usage("--device %q: rsockets run on the device below it (%s)", name,
			strings.TrimPrefix(name, ibcompat.Prefix))
	}
	if name == "auto" { // the address chooses; usiw0 if it is that of no device of the kernel
		_, err := verbs.DeviceByName("usiw0")
		return nil, err
	}
	if dev, err = verbs.DeviceByName(name); err == nil {
		err = tryDevice(dev)
	}
	if op := new(verbs.OpError); errors.As(err, &op) && errors.Is(err, verbs.ErrNoDevice) {
		err = usage("--device %q: %v", name, op.Err)
	}
	return dev, err
}

// tryDevice opens a device and closes it.
func tryDevice(dev *verbs.Device) error {
	ctx, err := dev.Open()
	if err != nil {
		return err
	}
	return ctx.Close()
}
