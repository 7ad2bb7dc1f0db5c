// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// What the rping of librdmacm has where no option says otherwise. Its manual says that the size is 100; the program has
// 64, and a server must have at least what its clients have.
const (
	rpingPort    = 7174
	rpingSize    = 64
	rpingMinSize = 23
	rpingMaxSize = 64 * 1024
)

// rpingOptions are the options of the rping command.
type rpingOptions struct {
	server, client bool
	address        string // without port; "" on a server is every address
	source         string // the client's own, "" is by the route
	port           int
	count          int // pings; 0 is no end, and on a server any number
	size           int // octets of a ping
	verbose        bool
	validate       bool
	debug          bool
	persistent     bool
	selfQP         bool
}

func newRPing() *cobra.Command {
	o := rpingOptions{port: rpingPort, size: rpingSize}
	cmd := &cobra.Command{
		Use:   "rping {-s | -c -a ADDR} [flags]",
		Short: "Ping with RDMA Read and Write, as librdmacm's rping does",
		Long: "Ping with RDMA Read and Write, as server or client, also together with librdmacm's rping.\n\n" +
			"For each ping the client tells the server where its data are; the server fetches them by RDMA Read and writes\n" +
			"them back by RDMA Write. With -V the client compares what came back with what it had, and the server what it\n" +
			"fetched with the pattern that clients send.\n\n" +
			"The client ends after -C pings, without -C never. The server ends when its client disconnects, with exit status 0\n" +
			"if that was between two pings and, with -C, after at least so many; with -P it serves all that come until it is\n" +
			"ended by a signal. The size of the server must not be below that of its clients.",
		Args: noArguments,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&o.server, "server", "s", false, "be the server")
	f.BoolVarP(&o.client, "client", "c", false, "be the client")
	f.StringVarP(&o.address, "address", "a", "", "server: listen on `ADDR` (default: all); client: the server's address")
	f.VarP(&boundedInt{&o.port, 0, math.MaxUint16}, "port", "p", "the server's `PORT` (server: 0 for any, which -d prints)")
	f.StringVarP(&o.source, "source", "I", "", "client: connect from the local address `ADDR`")
	f.VarP(&boundedInt{&o.count, 0, math.MaxInt32}, "count", "C", "`COUNT` of pings (0: no end)")
	f.VarP(&boundedInt{&o.size, rpingMinSize, rpingMaxSize}, "size", "S", "`SIZE` of a ping in octets")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the data of each ping")
	f.BoolVarP(&o.validate, "validate", "V", false, "verify the data of each ping")
	f.BoolVarP(&o.debug, "debug", "d", false, "print what is done")
	f.BoolVarP(&o.persistent, "persistent", "P", false, "server: serve many clients, also at the same time")
	f.BoolVarP(&o.selfQP, "self-qp", "q", false, "")
	_ = f.MarkHidden("self-qp")
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
		return runRPing(cmd, dev, o)
	})
	return cmd
}

// check finds options that do not go together, and addresses that are none.
func (o *rpingOptions) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flag(name).Changed }
	switch {
	case o.selfQP:
		return usage(cmd, "-q: not supported: the states of a QP are the connection manager's affair here")
	case o.server && o.client:
		return usage(cmd, "-s and -c: a process is server or client")
	case !o.server && !o.client:
		return usage(cmd, "neither -s (server) nor -c (client) is given")
	case o.client && !given("address"):
		return usage(cmd, "-c: the server's address is missing (-a ADDR)")
	case o.client && o.port == 0:
		return usage(cmd, "-p 0: no port to connect to")
	case o.client && o.persistent:
		return usage(cmd, "-P: is for servers (-s)")
	case o.server && given("source"):
		return usage(cmd, "-I %q: is for clients (-c)", o.source)
	}
	for _, a := range []struct{ name, option, value string }{{"address", "-a", o.address}, {"source", "-I", o.source}} {
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

// endpoint returns the server's address and port.
func (o *rpingOptions) endpoint() string { return net.JoinHostPort(o.address, strconv.Itoa(o.port)) }

// sourceAddr returns the client's own address, zero if none was given. One that is given by name has the family of a
// server that is given by address.
func (o *rpingOptions) sourceAddr(ctx context.Context) (netip.AddrPort, error) {
	if o.source == "" {
		return netip.AddrPort{}, nil
	}
	network := "ip"
	if server, err := netip.ParseAddr(o.address); err == nil {
		network = "ip4"
		if server.Unmap().Is6() {
			network = "ip6"
		}
	}
	ip, err := netip.ParseAddr(o.source)
	if err != nil {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, network, o.source)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("-I %s: %w", o.source, err)
		}
		ip = ips[0]
	}
	return netip.AddrPortFrom(ip.Unmap(), 0), nil
}

// rping is one run of the command.
type rping struct {
	rpingOptions
	dev *verbs.Device

	mu         sync.Mutex // guards what follows; clients of a server are served at the same time
	out, notes io.Writer  // notes is where no data go
}

func runRPing(cmd *cobra.Command, dev *verbs.Device, o rpingOptions) error {
	r := &rping{rpingOptions: o, dev: dev, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
	ctx := cmd.Context()
	var err error
	if o.server {
		err = r.serve(ctx)
	} else {
		err = r.pingAll(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the errors of everything that was cut off then say nothing
	}
	return err
}

// print writes a line of data.
func (r *rping) print(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.out, format+"\n", args...)
	return err
}

// trace writes a line for people who look for errors, with -d.
func (r *rping) trace(format string, args ...any) {
	if r.debug {
		_ = r.print(format, args...)
	}
}

// note writes lines to notes; those of one call stay together.
func (r *rping) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.notes, format+"\n", args...)
}

// rpingParam are the parameters of both sides of a connection: the server has one Read in progress at a time.
func rpingParam() cm.ConnParam {
	return cm.ConnParam{InitiatorDepth: 1, ResponderResources: 1, RetryCount: 7, RNRRetryCount: 7}
}
