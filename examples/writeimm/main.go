// SPDX-License-Identifier: BSD-3-Clause

// Command writeimm connects to itself and sends a text by RDMA Write with immediate: the text
// appears in the peer's memory, and the peer gets a completion with the immediate.
//
//	writeimm [-device NAME] [-listen ADDR]
//
// It uses the user-space RNIC, or another device with one of that device's addresses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/compat/ibcompat" // devices ib:NAME
	_ "github.com/goverbs/goverbs/usiw"            // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "usiw0", "use the device `NAME`")
	listen := flag.String("listen", "127.0.0.1:0", "listen on `ADDR`, which the device must reach")
	flag.Parse()
	if err := run(context.Background(), *device, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, device, listen string) error {
	dev, err := verbs.DeviceByName(device)
	if err != nil {
		return err
	}
	cfg := cm.Config{Device: dev}

	ln, err := cm.Listen(ctx, listen, cfg)
	if err != nil {
		return err
	}
	defer ln.Close()
	received := make(chan error, 1)
	go func() { received <- receive(ctx, ln) }()

	if err := write(ctx, ln.Addr().String(), cfg, "hello, memory"); err != nil {
		return err
	}
	return <-received
}

// receive accepts a connection, sends the peer the address and key of its memory, and prints what
// arrives there.
func receive(ctx context.Context, ln *cm.Listener) error {
	ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{Memory: 4096, Access: verbs.AccessRemoteWrite, Offer: true})
	if err != nil {
		return err
	}
	defer ep.Close()
	wc, err := ep.Recv(ctx, nil) // the immediate is a message without data
	if err != nil {
		return err
	}
	fmt.Printf("%v: %d bytes, immediate %d: %q\n", wc.Opcode, wc.ByteLen, wc.Imm, ep.MR().Bytes()[:wc.ByteLen])
	if _, err := ep.Recv(ctx, nil); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// write connects and writes text to the peer's memory.
func write(ctx context.Context, address string, cfg cm.Config, text string) error {
	ep, err := cm.Dial(ctx, address, cfg, cm.EndpointConfig{Memory: 4096})
	if err != nil {
		return err
	}
	defer ep.Close()
	to, err := verbs.ParseRemote(ep.PrivateData())
	if err != nil {
		return err
	}
	sge, err := ep.MR().SGE(0, copy(ep.MR().Bytes(), text))
	if err != nil {
		return err
	}
	if _, err := ep.Do(ctx, verbs.WriteImm(to, 7306, sge)); err != nil {
		return err
	}
	return ep.Shutdown(ctx) // returns when the text has arrived
}
