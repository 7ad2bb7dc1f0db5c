// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// serve accepts one connection and answers its messages until the peer disconnects.
func serve(ctx context.Context, ln *cm.Listener) error {
	ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
	if err != nil {
		return err
	}
	defer ep.Close()
	p := make([]byte, cm.DefaultMessageSize)
	for {
		wc, err := ep.Recv(ctx, p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ep.Send(ctx, append([]byte("you said "), p[:wc.ByteLen]...)); err != nil {
			return err
		}
	}
}

// call sends a message and prints the answer.
func call(ctx context.Context, address string, dev *verbs.Device) error {
	ep, err := cm.Dial(ctx, address, cm.Config{Device: dev}, cm.EndpointConfig{})
	if err != nil {
		return err
	}
	defer ep.Close()
	if err := ep.Send(ctx, []byte("hello")); err != nil {
		return err
	}
	p := make([]byte, cm.DefaultMessageSize)
	wc, err := ep.Recv(ctx, p)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", p[:wc.ByteLen])
	return nil
}

// A server and a client exchange messages on a user-space RNIC.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()

	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	var g errgroup.Group
	g.Go(func() error { return serve(ctx, ln) })
	g.Go(func() error { return call(ctx, ln.Addr().String(), nic.Device()) })
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	// Output: you said hello
}

// Without an Endpoint, the program creates each object itself, as with librdmacm and libibverbs.
func ExampleResolve() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error)
	go func() { served <- serve(ctx, ln) }()

	if err := callByHand(ctx, ln.Addr().String(), nic.Device()); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output: you said hello
}

// callByHand is call without an Endpoint.
func callByHand(ctx context.Context, address string, dev *verbs.Device) error {
	id, err := cm.Resolve(ctx, address, cm.Config{Device: dev})
	if err != nil {
		return err
	}
	defer id.Close()
	pd, err := id.Context().AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	mr, err := pd.AllocMR(8192, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()
	cq, err := id.Context().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()

	// The receive for the answer is posted before the peer can send it.
	into, err := mr.SGE(4096, 4096)
	if err != nil {
		return err
	}
	if err := id.BindQP(qp); err != nil {
		return err
	}
	if _, err := qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{into}}}); err != nil {
		return err
	}
	if err := id.Connect(ctx, qp, cm.ConnParam{}); err != nil {
		return err
	}
	from, err := mr.SGE(0, copy(mr.Bytes(), "hello"))
	if err != nil {
		return err
	}
	if _, err := qp.PostSend([]verbs.SendWR{verbs.Send(from)}); err != nil {
		return err
	}
	for wcs := make([]verbs.WC, 1); ; {
		if _, err := cq.Wait(ctx, wcs); err != nil {
			return err
		}
		if err := wcs[0].Err(); err != nil {
			return fmt.Errorf("%w: %w", err, qp.Err())
		}
		if wcs[0].IsRecv() {
			fmt.Printf("%s\n", mr.Bytes()[4096:4096+wcs[0].ByteLen])
			return nil
		}
	}
}

// A stalled network delays a request. The call that gives up does not cancel the request.
func ExamplePendingError() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	wire := usiwtest.NewWire()
	nic, err := usiw.New(usiw.Config{Network: wire})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: nic.Device()})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error)
	go func() { served <- serve(ctx, ln) }()
	ep, err := cm.Dial(ctx, "server:7306", cm.Config{Device: nic.Device()}, cm.EndpointConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer ep.Close()
	if _, err := ep.Do(ctx, verbs.Read(verbs.Remote{RKey: 1})); err != nil { // both sides are connected
		log.Fatal(err)
	}

	wire.Links()[0].Stall()
	short, giveUp := context.WithTimeout(ctx, time.Second)
	defer giveUp()
	// a Read of no bytes: its answer shows that the peer's device is alive
	_, err = ep.Do(short, verbs.Read(verbs.Remote{RKey: 1}))
	var pending *cm.PendingError
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.As(err, &pending))

	wire.Links()[0].Resume()
	_, err = pending.Wait(ctx) // until here the request's memory belonged to the device
	fmt.Println(err)
	if err := ep.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served)
	// Output:
	// true true
	// <nil>
	// <nil>
}
