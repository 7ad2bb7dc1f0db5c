// SPDX-License-Identifier: BSD-3-Clause

// Command sequencer hands out numbers: clients draw them with FetchAdd from a word in a server's
// memory, while the server's program does nothing. No number is handed out twice, and none is
// skipped.
//
//	sequencer [-device NAME] [-listen ADDR]
//
// It needs a device with atomics: the user-space RNIC, InfiniBand, RoCE, or ib:NAME.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/compat/ibcompat" // devices ib:NAME
	_ "github.com/goverbs/goverbs/usiw"            // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

const (
	clients = 4
	draws   = 250 // per client
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
	ln, err := cm.Listen(ctx, listen, cm.Config{Device: dev})
	if err != nil {
		return err
	}
	defer ln.Close()
	drawn, err := drawAll(ctx, ln, dev)
	if err != nil {
		return err
	}
	for n, times := range drawn {
		if times != 1 {
			return fmt.Errorf("the number %d was given out %d times", n, times)
		}
	}
	fmt.Printf("%d numbers for %d clients, each given out once\n", len(drawn), clients)
	return nil
}

// drawAll runs the server and the clients, and returns how often each number was handed out.
func drawAll(ctx context.Context, ln *cm.Listener, dev *verbs.Device) ([]int, error) {
	pd, err := ln.Context().AllocPD()
	if err != nil {
		return nil, err
	}
	defer pd.Close()
	word, err := pd.AllocMR(8, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	if err != nil {
		return nil, err
	}
	defer word.Close()
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- serve(serving, ln, pd, word) }()

	drawn := make([]int, clients*draws)
	var mu sync.Mutex // guards drawn
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			return draw(ctx, ln.Addr().String(), dev, func(n uint64) error {
				mu.Lock()
				defer mu.Unlock()
				if n >= uint64(len(drawn)) {
					return fmt.Errorf("the number %d is too large", n)
				}
				drawn[n]++
				return nil
			})
		})
	}
	err = group.Wait()
	stop()
	return drawn, errors.Join(err, <-served)
}

// serve accepts connections and sends each client the location of the word, until ctx is done.
func serve(ctx context.Context, ln *cm.Listener, pd *verbs.PD, word *verbs.MR) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{PD: pd, MR: word, Offer: true})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		connections.Go(func() {
			defer ep.Close()
			_, _ = ep.Recv(context.Background(), nil) // returns when the client disconnects
		})
	}
}

// draw connects and draws numbers.
func draw(ctx context.Context, address string, dev *verbs.Device, got func(n uint64) error) error {
	ep, err := cm.Dial(ctx, address, cm.Config{Device: dev}, cm.EndpointConfig{Memory: 8})
	if err != nil {
		return err
	}
	defer ep.Close()
	counter, err := verbs.ParseRemote(ep.PrivateData())
	if err != nil {
		return err
	}
	sink, err := ep.MR().SGE(0, 8)
	if err != nil {
		return err
	}
	number, err := ep.MR().Word(0)
	if err != nil {
		return err
	}
	for range draws {
		if _, err := ep.Do(ctx, verbs.FetchAdd(counter, 1, sink)); err != nil {
			return err
		}
		if err := got(number.Load()); err != nil {
			return err
		}
	}
	return nil
}
