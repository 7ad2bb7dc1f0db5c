// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/demo"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/verbs"
)

// snapLenFlag and limitFlag are the options that limit what --pcap records; minSnapLen and minLimit
// are their minimum values.
const (
	snapLenFlag = "pcap-snaplen"
	limitFlag   = "pcap-limit"
	minSnapLen  = 68
	minLimit    = 4 << 10
)

// demoOptions are the options of the demo command.
type demoOptions struct {
	demo.Options
	pcap    string // capture file of the RNIC's traffic, "" = none
	snapLen byteSize
	limit   byteSize
	without string // hidden: comma-separated operations that the user-space RNIC shall lack
}

func newDemo() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run every kind of RDMA operation between two processes and verify it",
		Long: "Run every kind of RDMA operation between two processes and verify what came of it on both sides: first between\n" +
			"a connecting and a listening process, then by eight client processes that contend for a lock taken by masked\n" +
			"CmpSwap and for a counter of several fields moved by masked FetchAdd.\n\n" +
			"Without --listen and --connect the demo starts the listening half itself, as a second process on 127.0.0.1.\n" +
			"With them the halves run where they are started, also on different hosts. The listening half serves one demo\n" +
			"and ends; the connecting half tries for 10 seconds if the listening one is not up yet. Both exit with status 0\n" +
			"if everything was verified.\n\n" +
			"The device of each half is chosen by --device. What one of the two devices has not is skipped, and the output says\n" +
			"so; the user-space RNIC usiw0 has everything, and there a skip is a failure.\n\n" +
			"With --pcap the process records what its own RNIC sends and receives, for Wireshark. Without --listen that is\n" +
			"the whole conversation of the two halves; the connections of the client processes are recorded by a listening\n" +
			"half with --pcap. A recording that reaches --pcap-limit ends there, with a remark; the demo goes on. SIZE is in\n" +
			"bytes, or with K, M or G in units of 1024, 1024^2 or 1024^3 bytes.",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Listen, "listen", "", "be the listening half, on `ADDR` (host:port, :port)")
	f.StringVar(&o.Connect, "connect", "", "be the connecting half, to a listening one at `ADDR` (host:port)")
	addDeviceFlag(cmd)
	f.BoolVar(&o.JSON, "json", false, "print one line of JSON")
	f.StringVar(&o.pcap, "pcap", "", "record what the RNIC of this process sends and receives in `FILE` (pcapng)")
	f.Var(&o.snapLen, snapLenFlag, "store the first `SIZE` of each packet (default: all of it; at least 68)")
	f.Var(&o.limit, limitFlag, "record up to a length of the file of `SIZE` (default: no limit; at least 4K)")
	f.StringArrayVar(&o.Breaks, "break", nil, "corrupt the comparisons of a `STEP`, or of STEP:COMPARISON one")
	f.StringVar(&o.without, "without", "", "take `OPERATIONS` from the user-space RNIC")
	f.IntVar(&o.Clients, "clients", 8, "client processes")
	f.IntVar(&o.Ops, "ops", 2000, "operations of each client process")
	f.BoolVar(&o.Child, "child", false, "the parent process reads stdout")
	for _, name := range []string{"break", "without", "clients", "ops", "child"} {
		_ = f.MarkHidden(name)
	}
	complete(cmd, snapLenFlag)
	complete(cmd, limitFlag)
	complete(cmd, "listen")
	complete(cmd, "connect")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		if o.pcap != "" && cmd.Flag(deviceFlag).Changed {
			// Before the file is truncated.
			err := devices.WithNIC(cmd.Context(), nicConfig(cmd), func(nic *verbs.Device) error {
				_, err := o.device(cmd, nic)
				return err
			})
			if err != nil {
				return err
			}
		}
		o.Stdin, o.Stdout, o.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		rec := demo.StartRecording(o.pcap, capture.Config{SnapLen: int(o.snapLen), MaxBytes: int64(o.limit)})
		cfg := rec.Config()
		named := nicConfig(cmd)
		cfg.Name, cfg.Without = named.Name, named.Without|o.withoutOps()
		err := devices.WithNIC(cmd.Context(), cfg, func(nic *verbs.Device) error {
			dev, err := o.device(cmd, nic)
			if err != nil {
				return err
			}
			return demo.Run(cmd.Context(), dev, o.Options, rec)
		})
		return errors.Join(err, rec.Close())
	}
	return cmd
}

// newDemoClient returns the command that the demo's client processes run.
func newDemoClient() *cobra.Command {
	cmd := &cobra.Command{
		Use:    demo.ClientCommand,
		Short:  "Be a client process of the demo, which starts it",
		Hidden: true,
		Args:   noArguments,
	}
	addDeviceFlag(cmd)
	cmd.RunE = withNIC(func(cmd *cobra.Command, nic *verbs.Device) error {
		dev, err := chosenDevice(cmd, nic)
		if err != nil {
			return err
		}
		return demo.RunClient(cmd.Context(), dev, cmd.InOrStdin(), cmd.OutOrStdout())
	})
	return cmd
}

// check rejects invalid option values.
func (o *demoOptions) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flag(name).Changed }
	switch {
	case given("listen") && given("connect"):
		return usage(cmd, "--listen %s and --connect %s: a process is one half or, without them, both", o.Listen,
			o.Connect)
	case given("pcap") && o.pcap == "":
		return usage(cmd, "--pcap %q: no file", o.pcap)
	case o.pcap == "" && given(snapLenFlag):
		return usage(cmd, "--%s %v: nothing is recorded without --pcap", snapLenFlag, &o.snapLen)
	case o.pcap == "" && given(limitFlag):
		return usage(cmd, "--%s %v: nothing is recorded without --pcap", limitFlag, &o.limit)
	case given(snapLenFlag) && (o.snapLen < minSnapLen || o.snapLen > math.MaxInt32):
		return usage(cmd, "--%s %v: not from %d to %d", snapLenFlag, &o.snapLen, minSnapLen, math.MaxInt32)
	case given(limitFlag) && o.limit < minLimit:
		return usage(cmd, "--%s %v: less than %d", limitFlag, &o.limit, minLimit)
	case o.Clients < 1 || o.Clients > demo.MaxClients:
		return usage(cmd, "--clients %d: not from 1 to %d", o.Clients, demo.MaxClients)
	case o.Ops < 1 || o.Ops > demo.MaxClientOps:
		return usage(cmd, "--ops %d: not from 1 to %d", o.Ops, demo.MaxClientOps)
	}
	for _, b := range o.Breaks {
		if step, _, _ := strings.Cut(b, ":"); !slices.Contains(demo.StepNames(), step) {
			return usage(cmd, "--break %q: no such step (there are: %s)", b, strings.Join(demo.StepNames(), ", "))
		}
	}
	if given("listen") {
		if err := checkAddress(o.Listen, true); err != "" {
			return usage(cmd, "--listen %q: %s", o.Listen, err)
		}
	}
	if given("connect") {
		if err := checkAddress(o.Connect, false); err != "" {
			return usage(cmd, "--connect %q: %s", o.Connect, err)
		}
	}
	return nil
}

// device returns the chosen device. Only the user-space RNIC can be recorded.
func (o *demoOptions) device(cmd *cobra.Command, nic *verbs.Device) (*verbs.Device, error) {
	dev, err := chosenDevice(cmd, nic)
	if err == nil && o.pcap != "" && dev != nic {
		return nil, usage(cmd, "--pcap %s: only the user-space RNIC of this process, %s, can be recorded, not --%s %s",
			o.pcap, nic.Name(), deviceFlag, devices.Name(dev))
	}
	return dev, err
}

// withoutOps returns the operations that --without names. Unknown names are ignored.
func (o *demoOptions) withoutOps() (ops verbs.OpSet) {
	for op := range verbs.Ops() {
		if slices.Contains(strings.Split(o.without, ","), op.String()) {
			ops |= verbs.MakeOpSet(op)
		}
	}
	return ops
}

// checkAddress returns what is wrong with an address, or "" if it is valid. A listener's address
// may lack the host and have port 0.
func checkAddress(address string, listen bool) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "not of the form host:port"
	}
	if host == "" && !listen {
		return "no host"
	}
	low := 1
	if listen {
		low = 0
	}
	n, err := strconv.ParseUint(port, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return "port " + strconv.Quote(port) + " is not a number"
	case err != nil || n < uint64(low) || n > 65535:
		return "port " + port + " is out of range " + strconv.Itoa(low) + " to 65535"
	}
	return ""
}
