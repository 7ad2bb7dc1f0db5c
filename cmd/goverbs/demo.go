// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// demoOptions are the options of the demo command.
type demoOptions struct {
	listen, connect string // which half; neither means both
	json            bool
	pcap            string   // file for what the RNIC sends and receives, "" = none
	breaks          []string // hidden: the comparisons that shall find a difference, see check
	without         string   // hidden: operations, separated by commas, that the user-space RNIC shall lack
	clients, ops    int      // hidden: client processes and operations of each
	child           bool     // hidden: the parent reads stdout and holds stdin
}

// errNotVerified is the error of a demo that ran and found something wrong. Its steps have told what.
var errNotVerified = errors.New("not verified")

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
			"so; the user-space RNIC has everything, and there a skip is a failure.\n\n" +
			"With --pcap the process records what its own RNIC sends and receives, for Wireshark. Without --listen that is\n" +
			"the whole conversation of the two halves; the connections of the client processes are recorded by a listening\n" +
			"half with --pcap.",
		Args: noArguments,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.listen, "listen", "", "be the listening half, on `ADDR` (host:port, :port)")
	f.StringVar(&o.connect, "connect", "", "be the connecting half, to a listening one at `ADDR` (host:port)")
	addDeviceFlag(cmd)
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	f.StringVar(&o.pcap, "pcap", "", "record what the RNIC of this process sends and receives in `FILE` (pcapng)")
	f.StringArrayVar(&o.breaks, "break", nil, "corrupt the comparisons of a `STEP`, or of STEP:COMPARISON one")
	f.StringVar(&o.without, "without", "", "take `OPERATIONS` from the user-space RNIC")
	f.IntVar(&o.clients, "clients", 8, "client processes")
	f.IntVar(&o.ops, "ops", 2000, "operations of each client process")
	f.BoolVar(&o.child, "child", false, "the parent process reads stdout")
	for _, name := range []string{"break", "without", "clients", "ops", "child"} {
		_ = f.MarkHidden(name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		if o.pcap != "" && cmd.Flag(deviceFlag).Changed {
			// Before the file is emptied.
			err := onNIC(cmd, siw.Config{}, func(nic *verbs.Device) error {
				_, err := o.device(cmd, nic)
				return err
			})
			if err != nil {
				return err
			}
		}
		rec := startRecording(o.pcap)
		cfg := rec.config()
		cfg.Without = o.withoutOps()
		err := onNIC(cmd, cfg, func(nic *verbs.Device) error {
			dev, err := o.device(cmd, nic)
			if err != nil {
				return err
			}
			return runDemo(cmd, dev, o, rec)
		})
		return errors.Join(err, rec.close())
	}
	return cmd
}

// check finds wrong values of options.
func (o *demoOptions) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flag(name).Changed }
	switch {
	case given("listen") && given("connect"):
		return usage(cmd, "--listen %s and --connect %s: a process is one half or, without them, both", o.listen, o.connect)
	case given("pcap") && o.pcap == "":
		return usage(cmd, "--pcap %q: no file", o.pcap)
	case o.clients < 1 || o.clients > maxClients:
		return usage(cmd, "--clients %d: not from 1 to %d", o.clients, maxClients)
	case o.ops < 1 || o.ops > maxClientOps:
		return usage(cmd, "--ops %d: not from 1 to %d", o.ops, maxClientOps)
	}
	for _, b := range o.breaks {
		if step, _, _ := strings.Cut(b, ":"); !slices.Contains(stepNames(), step) {
			return usage(cmd, "--break %q: no such step (there are: %s)", b, strings.Join(stepNames(), ", "))
		}
	}
	if given("listen") {
		if err := checkAddress(o.listen, true); err != "" {
			return usage(cmd, "--listen %q: %s", o.listen, err)
		}
	}
	if given("connect") {
		if err := checkAddress(o.connect, false); err != "" {
			return usage(cmd, "--connect %q: %s", o.connect, err)
		}
	}
	return nil
}

// device returns the device that is chosen. Only the user-space RNIC can be recorded.
func (o *demoOptions) device(cmd *cobra.Command, nic *verbs.Device) (*verbs.Device, error) {
	dev, err := chosenDevice(cmd, nic)
	if err == nil && o.pcap != "" && dev != nic {
		return nil, usage(cmd, "--pcap %s: only the user-space RNIC of this process, %s, can be recorded, not --%s %s", o.pcap,
			nic.Name(), deviceFlag, deviceName(dev))
	}
	return dev, err
}

// withoutOps returns the operations that --without names. Names that no operation has are ignored.
func (o *demoOptions) withoutOps() (ops verbs.OpSet) {
	for op := range verbs.Ops() {
		if slices.Contains(strings.Split(o.without, ","), op.String()) {
			ops |= verbs.MakeOpSet(op)
		}
	}
	return ops
}

// checkAddress says what is wrong with an address, "" if nothing is. A listener's may lack the host and have port 0.
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

// runDemo runs one half or both and prints the result. A recording that is not complete is a failure.
func runDemo(cmd *cobra.Command, dev *verbs.Device, o demoOptions, rec *recording) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	out := newConsole(cmd.OutOrStdout(), cmd.ErrOrStderr(), o.json || o.child)
	if o.child {
		go endWithParent(cmd.InOrStdin(), cancel)
	}
	result := newResult(deviceName(dev))
	err := rec.begun()
	switch {
	case err != nil:
	case o.listen != "":
		err = runListener(ctx, dev, o, out, cmd.OutOrStdout(), result)
	default:
		err = runDriver(ctx, dev, o, out, result)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the errors of everything that was cut off then say nothing
	}
	if err == nil || errors.Is(err, errNotVerified) {
		err = result.err()
	}
	if rerr := rec.close(); rerr != nil {
		err = errors.Join(err, rerr)
	}
	result.OK = err == nil
	if o.json && !o.child {
		if werr := result.write(cmd.OutOrStdout()); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	if err == nil {
		out.say("%s\n", result.summary())
	}
	return err
}

// endWithParent cancels when stdin ends, which the parent process holds open as long as it lives.
func endWithParent(stdin io.Reader, cancel context.CancelCauseFunc) {
	_, _ = io.Copy(io.Discard, stdin)
	cancel(errParentGone)
}

// errParentGone ends a child process whose stdin has ended.
var errParentGone = errors.New("the parent process has ended")
