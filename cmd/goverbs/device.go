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
		crc, err := chosenCRC(cmd)
		if err != nil {
			return err
		}
		return onNIC(cmd, siw.Config{CRC: crc}, func(nic *verbs.Device) error { return f(cmd, nic) })
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

// crcFlag is the name of the option that says when the user-space RNIC asks for CRCs. noCRCFlag, which is older, is --crc off.
const (
	crcFlag   = "crc"
	noCRCFlag = "no-crc"
)

// addCRCFlags adds both.
func addCRCFlags(cmd *cobra.Command) {
	policy := crcPolicy(siw.Auto)
	cmd.Flags().Var(&policy, crcFlag, "have the user-space RNIC ask for CRCs `WHEN`: on, off, or auto: not of Linux's siw")
	cmd.Flags().Bool(noCRCFlag, false, "")
	_ = cmd.Flags().MarkHidden(noCRCFlag)
}

// chosenCRC returns the policy of those options, the default for a command without them.
func chosenCRC(cmd *cobra.Command) (siw.Policy, error) {
	crc, no := cmd.Flag(crcFlag), cmd.Flag(noCRCFlag)
	switch {
	case crc == nil:
		return siw.Default, nil
	case crc.Changed && no.Changed:
		return 0, usage(cmd, "--%s %v and --%s: one says it all", crcFlag, crc.Value, noCRCFlag)
	case no.Value.String() == "true":
		return siw.Off, nil
	}
	return siw.Policy(*crc.Value.(*crcPolicy)), nil
}

// crcPolicy is the value of --crc.
type crcPolicy siw.Policy

// String implements pflag.Value.
func (p *crcPolicy) String() string { return siw.Policy(*p).String() }

// Type implements pflag.Value.
func (p *crcPolicy) Type() string { return "policy" }

// Set implements pflag.Value.
func (p *crcPolicy) Set(s string) error {
	for _, known := range []siw.Policy{siw.Auto, siw.On, siw.Off} {
		if s == known.String() {
			*p = crcPolicy(known)
			return nil
		}
	}
	return errors.New("not auto, on or off")
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
