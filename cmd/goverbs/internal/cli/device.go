// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// deviceFlag is the name of the option that chooses a device.
const deviceFlag = "device"

// addDeviceFlag adds the option --device.
func addDeviceFlag(cmd *cobra.Command) {
	cmd.Flags().String(deviceFlag, "",
		"use the device `NAME` of goverbs devices; usiw0-plain: without RFC 7306; ib:NAME: with\nthe semantics of InfiniBand; auto: by the address (default: usiw0)")
	completeDevices(cmd, true)
}

// chosenDevice returns the device that the option --device names, nic without the option. A name
// that no device has is wrong usage.
func chosenDevice(cmd *cobra.Command, nic *verbs.Device) (*verbs.Device, error) {
	f := cmd.Flag(deviceFlag)
	if !f.Changed {
		return nic, nil // even if the other devices cannot be listed
	}
	dev, err := devices.Choose(f.Value.String())
	if op := new(verbs.OpError); errors.As(err, &op) && errors.Is(err, verbs.ErrNoDevice) {
		known := []string{devices.Auto}
		for _, d := range devices.Names(nic) {
			known = append(known, d.Name)
		}
		return nil, usage(cmd, "--%s %q: %v%s", deviceFlag, f.Value, op.Err, didYouMean(f.Value.String(), known))
	}
	return dev, err
}

// nicConfig returns the Config of the process's user-space RNIC: usiw0, or another one that the
// option --device names.
func nicConfig(cmd *cobra.Command) usiw.Config {
	if f := cmd.Flag(deviceFlag); f != nil {
		return devices.NICConfig(f.Value.String())
	}
	return usiw.Config{}
}

// withNIC makes a command's function of one that finds the user-space RNIC among the devices, as
// the last of them.
func withNIC(f func(cmd *cobra.Command, nic *verbs.Device) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		crc, err := chosenCRC(cmd)
		if err != nil {
			return err
		}
		cfg := nicConfig(cmd)
		cfg.CRC = crc
		return devices.WithNIC(cmd.Context(), cfg, func(nic *verbs.Device) error { return f(cmd, nic) })
	}
}
