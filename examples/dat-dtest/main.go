// SPDX-License-Identifier: BSD-3-Clause

// Command dat-dtest exercises the DAT 2.0 interface over an ib: device: a rejected and an accepted
// connection, messages, RDMA Writes and Reads, completion flags, immediate data, plain and masked
// atomics, and a graceful disconnect. Each side checks every byte and every event, and prints what
// it saw. The output is the same on every device.
//
//	dat-dtest [-device NAME] [-address IP]            both sides in this process
//	dat-dtest -server [-device NAME] [-address IP]    one side each; the server listens on -port
//	dat-dtest -client IP [-device NAME]
//
// With -dtestx it is a partner for DAPL's program dtestx, which tests immediate data and atomics:
// it follows dtestx's messages and waits as long as dtestx does, some seven seconds in all.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/netdev"
	_ "github.com/goverbs/goverbs/usiw" // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

// dtestxPort is the port of dtestx's server.
const dtestxPort = 31112

// config is the command line.
type config struct {
	device  string
	address string // of this side's device
	client  string // the address of the server; if set, this is the client
	server  bool
	port    uint64
	dtestx  bool
}

func main() {
	log.SetFlags(0)
	var cfg config
	flag.StringVar(&cfg.device, "device", "ib:usiw0", "use the device `NAME`")
	flag.StringVar(&cfg.address, "address", "", "the address `IP` of the device (default: one of its own)")
	flag.BoolVar(&cfg.server, "server", false, "be the server only")
	flag.StringVar(&cfg.client, "client", "", "be the client only, of the server at `IP`")
	flag.Uint64Var(&cfg.port, "port", dtestxPort, "the `port` of the server; 0, for both sides in this process, is any")
	flag.BoolVar(&cfg.dtestx, "dtestx", false, "be a partner for dtestx")
	flag.Parse()
	if !cfg.server && cfg.client == "" {
		cfg.port = 0
	}
	if err := run(context.Background(), os.Stdout, cfg); err != nil {
		log.Fatal(err)
	}
}

// own returns the address of this side's device.
func (cfg config) own() (netip.Addr, error) {
	if cfg.address != "" {
		return netip.ParseAddr(cfg.address)
	}
	// An ib: device has the addresses of the underlying device.
	dev, err := verbs.DeviceByName(strings.TrimPrefix(cfg.device, ibcompat.Prefix))
	if err != nil {
		return netip.Addr{}, err
	}
	if _, kernel := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider()); !kernel {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil // the device has all addresses of the host
	}
	return netdev.Own(dev)
}

// run runs one side or both, and writes what they saw.
func run(ctx context.Context, w io.Writer, cfg config) error {
	address, err := cfg.own()
	if err != nil {
		return err
	}
	to := address
	if cfg.client != "" {
		if to, err = netip.ParseAddr(cfg.client); err != nil {
			return err
		}
		return runClient(ctx, w, cfg, address, to, cfg.port)
	}
	if cfg.server {
		return runServer(ctx, w, cfg, address, func(uint64) {})
	}
	var group errgroup.Group
	var server, client bytes.Buffer
	port := make(chan uint64, 1)
	group.Go(func() error {
		defer close(port)
		return runServer(ctx, &server, cfg, address, func(p uint64) { port <- p })
	})
	group.Go(func() error {
		p, ok := <-port
		if !ok {
			return nil // the server reports why
		}
		return runClient(ctx, &client, cfg, address, to, p)
	})
	err = group.Wait()
	fmt.Fprintf(w, "server\n%sclient\n%s", &server, &client)
	return err
}

// runServer serves one client.
func runServer(ctx context.Context, w io.Writer, cfg config, address netip.Addr,
	listening func(port uint64)) (err error) {
	s, err := newSide(ctx, w, cfg, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.ia.Close(dat.CloseAbrupt)) }()
	s.server = true
	psp, err := s.ia.CreatePSP(cfg.port, s.conn, dat.PSPConsumer)
	if err != nil {
		return err
	}
	at, err := psp.Query()
	if err != nil {
		return err
	}
	if cfg.dtestx {
		ln, err := net.Listen("tcp", net.JoinHostPort(address.String(), strconv.Itoa(paramsPort)))
		if err != nil {
			return err
		}
		defer ln.Close()
		listening(at.ConnQual)
		if err := tellClient(ctx, ln, address); err != nil {
			return err
		}
	} else {
		listening(at.ConnQual)
	}
	if err := s.accept(); err != nil {
		return err
	}
	return s.exercise()
}

// runClient connects to a server.
func runClient(ctx context.Context, w io.Writer, cfg config, address, to netip.Addr, port uint64) (err error) {
	s, err := newSide(ctx, w, cfg, netip.Addr{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.ia.Close(dat.CloseAbrupt)) }()
	if cfg.dtestx {
		if err := tellServer(ctx, to, address); err != nil {
			return err
		}
	}
	if err := s.connect(to, port); err != nil {
		return err
	}
	return s.exercise()
}

// exercise performs all steps that need a connection, and closes it.
func (s *side) exercise() error {
	steps := []func() error{s.exchange, s.messages, s.writes, s.reads, s.sendImmed, s.writeImmed, s.compareAndSwap,
		s.fetchAndAdd, s.masked, s.end}
	if s.dtestx {
		steps = []func() error{s.exchange, s.writeImmed, s.compareAndSwap, s.fetchAndAdd, s.leave}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	return nil
}
