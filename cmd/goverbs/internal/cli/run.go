// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/run"
	"github.com/goverbs/goverbs/usiw"
)

// runDevices are the devices that a program can be given.
var runDevices = []cobra.Completion{"usiw0", "usiw0-plain", "ib:usiw0", "ib:usiw0-plain"}

// runOptions are the options of the run command.
type runOptions struct {
	run.Options
	addr string
	crc  crcPolicy
}

func newRun() *cobra.Command {
	o := runOptions{crc: crcPolicy(usiw.Auto)}
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG]...",
		Short: "Run a program of libibverbs and librdmacm on the user-space RNIC",
		Long: "Run a program that is linked with libibverbs and librdmacm on the user-space RNIC usiw0, unchanged. It needs no RDMA\n" +
			"device, no kernel module and no root, and sees usiw0 as its only device, or as its first one with --keep-real. Its peers\n" +
			"are other such programs, programs of goverbs, and iWARP devices such as siw of Linux.\n\n" +
			"goverbs becomes CMD, so the exit status and all signals are CMD's own. What CMD starts is on the RNIC too; each\n" +
			"process has its own. It needs the libraries that make preload builds, beside goverbs.\n\n" +
			"With GOVERBS_RUN_VERBOSE=1 in the environment the program says on stderr what it asks for that the device does not\n" +
			"have, and why calls fail. docs/run.md lists what there is.",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.SetInterspersed(false) // options after CMD belong to CMD
	f.StringVar(&o.Device, deviceFlag, "",
		"give the program the device `NAME`: usiw0-plain: without RFC 7306; ib:NAME: with the semantics\nof InfiniBand (default: usiw0)")
	f.StringVar(&o.addr, "addr", "", "the RNIC has the local address `ADDR` (default: all of the host)")
	f.Var(&boundedInt{&o.MTU, 156, 65536}, "mtu", "the largest FPDU is `SIZE` bytes (default: 65536)")
	f.Var(&o.crc, crcFlag, "ask for CRCs `WHEN`: on, off, or auto: not of Linux's siw")
	f.StringVar(&o.Pcap, "pcap", "",
		"record what the RNIC sends and receives in `FILE` (pcapng); processes that CMD starts write\nFILE.PID")
	f.BoolVar(&o.KeepReal, "keep-real", false,
		"the program sees the devices of the kernel too; librdmacm connects over the RNIC only")
	complete(cmd, deviceFlag, runDevices...)
	complete(cmd, "addr")
	complete(cmd, "mtu")
	complete(cmd, crcFlag, "auto", "on", "off")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(cmd, args); err != nil {
			return err
		}
		o.CRC = usiw.Policy(o.crc)
		return run.Run(o.Options, args)
	}
	return cmd
}

// check rejects invalid option values.
func (o *runOptions) check(cmd *cobra.Command, args []string) error {
	given := func(name string) bool { return cmd.Flag(name).Changed }
	if len(args) == 0 {
		return usage(cmd, "no program was given")
	}
	if given(deviceFlag) && !slices.Contains(runDevices, o.Device) {
		return usage(cmd, "--%s %q: no device of a program that is run%s (there are: %s)", deviceFlag, o.Device,
			didYouMean(o.Device, runDevices), strings.Join(runDevices, ", "))
	}
	if given("pcap") && o.Pcap == "" {
		return usage(cmd, "--pcap %q: no file", o.Pcap)
	}
	if given("addr") {
		addr, err := netip.ParseAddr(o.addr)
		if err != nil {
			return usage(cmd, "--addr %q: not an IP address", o.addr)
		}
		o.Addr = addr
	}
	return nil
}
