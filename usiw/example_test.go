// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Two RNICs in one process, connected over TCP. Each could as well be in its own process or on its
// own host.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := usiw.New(usiw.Config{CRC: usiw.On})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: server.Device()})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	var g errgroup.Group
	g.Go(func() error {
		ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
		if err != nil {
			return err
		}
		defer ep.Close()
		p := make([]byte, cm.DefaultMessageSize)
		wc, err := ep.Recv(ctx, p)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", p[:wc.ByteLen])
		return nil
	})
	g.Go(func() error {
		ep, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: client.Device()}, cm.EndpointConfig{})
		if err != nil {
			return err
		}
		defer ep.Close()
		if err := ep.Send(ctx, []byte("hello")); err != nil {
			return err
		}
		<-ep.ID().Done() // the peer disconnects once it has the message
		return nil
	})
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	// Output: hello
}

// A registered RNIC is found by its name, like the kernel's devices.
func ExampleRegister() {
	nic, err := usiw.Register(usiw.Config{Name: "card0"}) // without a name it would be usiw0, if that is free
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	dev, err := verbs.DeviceByName("card0")
	fmt.Println(dev, err)
	// Output: card0 (usiw) <nil>
}
