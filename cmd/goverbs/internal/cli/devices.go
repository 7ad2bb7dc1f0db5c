// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

func newDevices() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the RDMA devices and what they can do",
		Long: "List the RDMA devices of this host, usiw0 of this process among them, and what operations they have.\n" +
			"Every process can have usiw0-plain too, without RFC 7306, and each device NAME can be wrapped in ib:NAME; these are\n" +
			"listed by --device only.\n" +
			"With -v everything that ibv_devinfo -v shows is shown in the same way, and in a section of its own what only goverbs\n" +
			"knows. A device that cannot be opened is listed with the reason.",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	verbose := cmd.Flags().BoolP("verbose", "v", false, "show all attributes")
	asJSON := cmd.Flags().Bool("json", false, "print one line of JSON")
	cmd.Flags().String(deviceFlag, "", "list the device `NAME` only")
	completeDevices(cmd, false)
	cmd.RunE = withNIC(func(cmd *cobra.Command, nic *verbs.Device) error {
		var only *verbs.Device
		if cmd.Flag(deviceFlag).Changed {
			var err error
			if only, err = chosenDevice(cmd, nic); err != nil {
				return err
			}
			if only == nil {
				return usage(cmd, "--%s %s: there is no address that could choose", deviceFlag, devices.Auto)
			}
		}
		list := devices.List(nic, only, *verbose)
		switch {
		case *asJSON:
			return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
		case *verbose:
			return list.PrintVerbose(cmd.OutOrStdout())
		}
		return list.Print(cmd.OutOrStdout())
	})
	return cmd
}
