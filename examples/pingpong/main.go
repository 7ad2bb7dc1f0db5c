// SPDX-License-Identifier: BSD-3-Clause

// Command pingpong connects two queue pairs without a connection manager and sends a message back
// and forth. The two programs exchange GID, QP number and PSN over TCP and move their QPs to RTS
// themselves, like ibv_rc_pingpong(1). Options and output are the same, and either program can be
// the other's peer.
//
//	pingpong [-d NAME]            the server
//	pingpong [-d NAME] HOST       the client
//
// It needs InfiniBand, RoCE, or ib:NAME of any device.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/spf13/pflag"

	"github.com/goverbs/goverbs/verbs"
)

// options are the command-line options.
type options struct {
	device   string
	port     int // TCP
	ibPort   int
	size     int
	mtu      int // bytes
	depth    int
	iters    int
	sl       int
	gid      int // index, -1 = the one that matches the TCP connection
	events   bool
	validate bool
	host     string // of the server, "" = this is the server
}

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// parse parses a command line.
func parse(args []string) (o options, err error) {
	f := pflag.NewFlagSet("pingpong", pflag.ExitOnError)
	f.StringVarP(&o.device, "device", "d", "ib:usiw0", "use the device `NAME`")
	f.IntVarP(&o.port, "port", "p", 18515, "listen on, or connect to, this TCP port")
	f.IntVarP(&o.ibPort, "ib-port", "i", 1, "use this port of the device")
	f.IntVarP(&o.size, "size", "s", 4096, "the size of a message in bytes")
	f.IntVarP(&o.mtu, "mtu", "m", 1024, "path MTU in bytes")
	f.IntVarP(&o.depth, "rx-depth", "r", 500, "how many receives are posted at a time")
	f.IntVarP(&o.iters, "iters", "n", 1000, "how many messages each side sends")
	f.IntVarP(&o.sl, "sl", "l", 0, "service level")
	f.IntVarP(&o.gid, "gid-idx", "g", -1,
		"use this row of the GID table (default: the one of the TCP connection's address)")
	f.BoolVarP(&o.events, "events", "e", false, "sleep until a completion comes (default: poll)")
	f.BoolVarP(&o.validate, "chk", "c", false, "look whether the data have arrived")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 1 {
		return o, fmt.Errorf("%q: there is one server", f.Args())
	}
	o.host = f.Arg(0)
	for name, bad := range map[string]bool{
		"port": o.port < 0 || o.port > 65535, "ib-port": o.ibPort < 1 || o.ibPort > 255, "size": o.size < 1,
		"mtu": mtus[o.mtu] == 0, "rx-depth": o.depth < 1, "iters": o.iters < 1, "sl": o.sl < 0 || o.sl > 15,
		"gid-idx": o.gid < -1 || o.gid > 255,
	} {
		if bad {
			return o, fmt.Errorf("--%s %s: %w", name, f.Lookup(name).Value, verbs.ErrInvalid)
		}
	}
	return o, nil
}

var mtus = map[int]verbs.MTU{256: verbs.MTU256, 512: verbs.MTU512, 1024: verbs.MTU1024, 2048: verbs.MTU2048,
	4096: verbs.MTU4096}

// run runs one side.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	e, err := newEnd(o)
	if err != nil {
		return err
	}
	defer e.close()
	if _, err := e.ctx.GIDs(o.ibPort); err != nil { // without GIDs there is no address to send to the peer
		return err
	}
	channel, err := dial(ctx, o)
	if err != nil {
		return err
	}
	defer channel.Close()
	defer context.AfterFunc(ctx, func() { channel.Close() })()
	row, err := e.row(channel.LocalAddr())
	if err != nil {
		return err
	}
	port, err := e.ctx.QueryPort(o.ibPort)
	if err != nil {
		return err
	}
	local := newPlace(port.LID, e.qp.Num(), row.GID)
	fmt.Fprintf(out, "  local address:  %v\n", local)
	var remote place
	bringUp := func() error { return e.bringUp(local, remote, row.Index) }
	if o.host == "" {
		remote, err = receive(channel)
		if err == nil {
			err = bringUp() // the client sends as soon as it has this side's address
		}
		if err == nil {
			err = answer(channel, local)
		}
	} else {
		remote, err = ask(channel, local)
		if err == nil {
			err = bringUp()
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  remote address: %v\n", remote)
	took, err := e.play(ctx)
	if err != nil {
		return err
	}
	usec := float64(took.Nanoseconds()) / 1e3
	bytes := 2 * o.size * o.iters
	fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, usec/1e6, float64(bytes)*8/usec)
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", o.iters, usec/1e6, usec/float64(o.iters))
	if o.host == "" && o.validate {
		for _, page := range e.invalid() {
			fmt.Fprintf(out, "invalid data in page %d\n", page)
		}
	}
	return nil
}
