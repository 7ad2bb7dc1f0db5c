// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// deviceFlag is the name of the option that chooses a device.
const deviceFlag = "device"

// addDeviceFlag adds the option --device.
func addDeviceFlag(cmd *cobra.Command) {
	cmd.Flags().String(deviceFlag, "", "use the device `NAME` of goverbs devices; auto: by the address (default: usiw0)")
	completeDevices(cmd, true)
}

// chosenDevice returns the device that the option --device names, nic without the option. A name that no device has is
// wrong usage.
func chosenDevice(cmd *cobra.Command, nic *verbs.Device) (*verbs.Device, error) {
	f := cmd.Flag(deviceFlag)
	if !f.Changed {
		return nic, nil // even if the other devices cannot be listed
	}
	dev, err := devices.Choose(f.Value.String(), nic)
	if op := new(verbs.OpError); errors.As(err, &op) && errors.Is(err, verbs.ErrNoDevice) {
		known := []string{devices.Auto}
		for _, d := range devices.All(nic) {
			known = append(known, d.Name())
		}
		return nil, usage(cmd, "--%s %q: %v%s", deviceFlag, f.Value, op.Err, didYouMean(f.Value.String(), known))
	}
	return dev, err
}

// withNIC makes a command's function of one that finds the user-space RNIC among the devices, as the last of them.
func withNIC(f func(cmd *cobra.Command, nic *verbs.Device) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		crc, err := chosenCRC(cmd)
		if err != nil {
			return err
		}
		return devices.WithNIC(cmd.Context(), siw.Config{CRC: crc}, func(nic *verbs.Device) error { return f(cmd, nic) })
	}
}
