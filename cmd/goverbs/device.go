// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// withNIC makes a command's function of one that finds the user-space RNIC among the devices, as the last of them.
func withNIC(f func(cmd *cobra.Command, nic *verbs.Device) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		var cfg siw.Config
		if crc := cmd.Flag(noCRCFlag); crc != nil && crc.Value.String() == "true" {
			cfg.CRC = siw.Off
		}
		return onNIC(cmd, cfg, func(nic *verbs.Device) error { return f(cmd, nic) })
	}
}

// onNIC runs f with a user-space RNIC among the devices, as the last of them.
func onNIC(cmd *cobra.Command, cfg siw.Config, f func(nic *verbs.Device) error) error {
	nic, err := siw.Register(cfg)
	if err != nil {
		return err
	}
	err = f(nic.Device())
	if cmd.Context().Err() != nil {
		return err // there may be no time to wait for peers; the end of the process closes everything
	}
	return errors.Join(err, nic.Close())
}

// deviceFlag is the name of the option that chooses a device.
const deviceFlag = "device"

// noCRCFlag is the name of the option for peers that a CRC does not agree with.
const noCRCFlag = "no-crc"

// addNoCRCFlag adds the option --no-crc.
func addNoCRCFlag(cmd *cobra.Command) {
	cmd.Flags().Bool(noCRCFlag, false, "have the user-space RNIC ask for no CRC, which Linux's siw needs over a network")
}

// userSpaceProvider is the provider of the user-space RNIC, which has every operation.
const userSpaceProvider = "siw"

// autoDevice is the value of --device that leaves the choice to the connection manager.
const autoDevice = "auto"

// addDeviceFlag adds the option --device.
func addDeviceFlag(cmd *cobra.Command) {
	cmd.Flags().String(deviceFlag, "", "use the device `NAME` of goverbs devices; auto: by the address (default: usiw0)")
}

// deviceName returns what --device must be to choose dev.
func deviceName(dev *verbs.Device) string {
	if dev == cm.Auto {
		return autoDevice
	}
	return dev.Name()
}

// chosenDevice returns the device that the option --device names, nic without the option.
func chosenDevice(cmd *cobra.Command, nic *verbs.Device) (*verbs.Device, error) {
	f := cmd.Flag(deviceFlag)
	switch {
	case !f.Changed || f.Value.String() == nic.Name():
		return nic, nil // whatever may be the matter with others
	case f.Value.String() == autoDevice:
		return cm.Auto, nil
	}
	dev, err := verbs.DeviceByName(f.Value.String())
	if op := new(verbs.OpError); errors.As(err, &op) && errors.Is(err, verbs.ErrNoDevice) {
		return nil, usage(cmd, "--%s %q: %v", deviceFlag, f.Value, op.Err)
	}
	return dev, err
}
