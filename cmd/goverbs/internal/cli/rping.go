// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"math"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/rping"
	"github.com/goverbs/goverbs/verbs"
)

// rpingOptions are the options of the rping command.
type rpingOptions struct {
	rping.Options
	client bool
	selfQP bool
}

func newRPing() *cobra.Command {
	o := rpingOptions{Options: rping.Options{Port: rping.DefaultPort, Size: rping.DefaultSize}}
	cmd := &cobra.Command{
		Use:   "rping {-s | -c -a ADDR} [flags]",
		Short: "Ping with RDMA Read and Write, as librdmacm's rping does",
		Long: "Ping with RDMA Read and Write, as server or client, also together with librdmacm's rping.\n\n" +
			"For each ping the client tells the server where its data are; the server fetches them by RDMA Read and writes\n" +
			"them back by RDMA Write. With -V the client compares what came back with what it had, and the server what it\n" +
			"fetched with the pattern that clients send.\n\n" +
			"The client ends after -C pings, without -C never. At its end it prints how long they took: a round trip is one\n" +
			"ping, in which each side sends two messages. With --json a client, and a server for each client, prints one line of\n" +
			"JSON at the end, and all other output goes to stderr.\n\n" +
			"The server ends when its client disconnects, with exit status 0 if that was between two pings and, with -C, after\n" +
			"at least that many; with -P it serves all clients until a signal ends it. The size of the server must not be below\n" +
			"that of its clients.",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&o.Server, "server", "s", false, "be the server")
	f.BoolVarP(&o.client, "client", "c", false, "be the client")
	f.StringVarP(&o.Address, "address", "a", "",
		"server: listen on `ADDR` (default: all); client: the server's address")
	f.VarP(&boundedInt{&o.Port, 0, math.MaxUint16}, "port", "p",
		"the server's `PORT` (server: 0 for any, which -d prints)")
	f.StringVarP(&o.Source, "source", "I", "", "client: connect from the local address `ADDR`")
	f.VarP(&boundedInt{&o.Count, 0, math.MaxInt32}, "count", "C", "`COUNT` of pings (0: no end)")
	f.VarP(&boundedInt{&o.Size, rping.MinSize, rping.MaxSize}, "size", "S", "`SIZE` of a ping in bytes")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "print the data of each ping")
	f.BoolVarP(&o.Validate, "validate", "V", false, "verify the data of each ping")
	f.BoolVarP(&o.Debug, "debug", "d", false, "print what is done")
	f.BoolVarP(&o.Persistent, "persistent", "P", false, "server: serve many clients, also at the same time")
	f.BoolVar(&o.JSON, "json", false, "print one line of JSON for each connection")
	f.BoolVarP(&o.selfQP, "self-qp", "q", false, "")
	_ = f.MarkHidden("self-qp")
	for _, name := range []string{"address", "port", "source", "count", "size"} {
		complete(cmd, name)
	}
	addDeviceFlag(cmd)
	addCRCFlags(cmd)
	cmd.RunE = withNIC(func(cmd *cobra.Command, nic *verbs.Device) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		dev, err := chosenDevice(cmd, nic)
		if err != nil {
			return err
		}
		o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		return rping.Run(cmd.Context(), dev, o.Options)
	})
	return cmd
}

// check rejects options that contradict each other, and invalid addresses.
func (o *rpingOptions) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flag(name).Changed }
	switch {
	case o.selfQP:
		return usage(cmd, "-q: not supported: the states of a QP are the connection manager's affair here")
	case o.Server && o.client:
		return usage(cmd, "-s and -c: a process is server or client")
	case !o.Server && !o.client:
		return usage(cmd, "neither -s (server) nor -c (client) is given")
	case o.client && !given("address"):
		return usage(cmd, "-c: the server's address is missing (-a ADDR)")
	case o.client && o.Port == 0:
		return usage(cmd, "-p 0: no port to connect to")
	case o.client && o.Persistent:
		return usage(cmd, "-P: is for servers (-s)")
	case o.Server && given("source"):
		return usage(cmd, "-I %q: is for clients (-c)", o.Source)
	}
	for _, a := range []struct{ name, option, value string }{{"address", "-a", o.Address}, {"source", "-I", o.Source}} {
		if !given(a.name) {
			continue
		}
		if a.value == "" {
			return usage(cmd, "%s %q: no address", a.option, a.value)
		}
		if _, err := netip.ParseAddr(a.value); err != nil && strings.ContainsAny(a.value, ":[]") {
			return usage(cmd, "%s %q: neither an IP address nor a host name (-p gives the port)", a.option, a.value)
		}
	}
	return nil
}
