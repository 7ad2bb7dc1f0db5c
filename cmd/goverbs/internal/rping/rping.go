// SPDX-License-Identifier: BSD-3-Clause

// Package rping pings with RDMA Read and Write. It interoperates with the rping of librdmacm in
// both roles.
package rping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// The defaults of librdmacm's rping. Its manual gives a size of 100, but the program uses 64, and a
// server's size must be at least that of its clients.
const (
	DefaultPort = 7174
	DefaultSize = 64
	MinSize     = 23
	MaxSize     = 64 * 1024
)

// Options configure Run.
type Options struct {
	Server     bool   // be the server, not the client
	Address    string // the server's, without port; "" on a server means every address
	Source     string // the client's own, "" = chosen by the route
	Port       int
	Count      int  // pings; 0 = no limit, and on a server any number
	Size       int  // bytes per ping, MinSize to MaxSize
	Verbose    bool // print the data of each ping
	Validate   bool // compare the data
	Debug      bool // print each operation
	Persistent bool // server: serve many clients, concurrently
	JSON       bool // print a line of JSON per connection to Stdout, and everything else to Stderr

	Stdout, Stderr io.Writer
}

// serverAddr returns the server's address and port.
func (o *Options) serverAddr() string { return net.JoinHostPort(o.Address, strconv.Itoa(o.Port)) }

// sourceAddr returns the client's own address, or the zero value if none was given. If it was given
// as a name and the server as an address, both have the same family.
func (o *Options) sourceAddr(ctx context.Context) (netip.AddrPort, error) {
	if o.Source == "" {
		return netip.AddrPort{}, nil
	}
	network := "ip"
	if server, err := netip.ParseAddr(o.Address); err == nil {
		network = "ip4"
		if server.Unmap().Is6() {
			network = "ip6"
		}
	}
	ip, err := netip.ParseAddr(o.Source)
	if err != nil {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, network, o.Source)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("-I %s: %w", o.Source, err)
		}
		ip = ips[0]
	}
	return netip.AddrPortFrom(ip.Unmap(), 0), nil
}

// run is one call of Run.
type run struct {
	Options
	dev *verbs.Device

	mu sync.Mutex // guards Stdout and Stderr; a server serves its clients concurrently
}

// Run is one end of a conversation on a device. It returns when the conversation ends or ctx is
// done.
func Run(ctx context.Context, dev *verbs.Device, o Options) error {
	r := &run{Options: o, dev: dev}
	if o.Server && o.Persistent {
		return because(ctx, r.serve(ctx, nil))
	}
	p := r.newReport()
	var err error
	if o.Server {
		err = r.serve(ctx, p)
	} else {
		err = r.pingAll(ctx, p)
	}
	err = because(ctx, err)
	return errors.Join(err, r.conclude(p, err))
}

// because returns the cause of ctx instead of err if ctx is done, when the errors of interrupted
// operations are meaningless.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// role returns the role of this process, as rping prints it.
func (r *run) role() string {
	if r.Server {
		return "server"
	}
	return "client"
}

// print writes a line of data.
func (r *run) print(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.Stdout
	if r.JSON {
		w = r.Stderr
	}
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}

// trace writes a line of debugging output, with -d.
func (r *run) trace(format string, args ...any) {
	if r.Debug {
		_ = r.print(format, args...)
	}
}

// note writes lines to Stderr, which carries no data. The lines of one call stay together.
func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.Stderr, format+"\n", args...)
}

// connParam returns the parameters of both sides of a connection: the server has one Read in flight
// at a time.
func connParam() cm.ConnParam {
	return cm.ConnParam{InitiatorDepth: 1, ResponderResources: 1, RetryCount: 7, RNRRetryCount: 7}
}
