// SPDX-License-Identifier: BSD-3-Clause

// Command lock shows a lock in a server's memory that clients acquire and release with masked
// CmpSwap, and a fencing token, which prevents a client that lost the lock from changing anything.
//
//	lock [-device NAME] [-listen ADDR]
//
// It needs a device with masked atomics: the user-space RNIC, or ib:NAME.
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
	clients = 3
	changes = 20 // per client
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
	pd, err := ln.Context().AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	mr, err := pd.AllocMR(words, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	if err != nil {
		return err
	}
	defer mr.Close()
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- serve(serving, ln, pd, mr) }()
	err = errors.Join(contend(ctx, ln.Addr().String(), dev), lose(ctx, ln.Addr().String(), dev))
	stop()
	return errors.Join(err, <-served)
}

// contend makes several clients increment the record under the lock.
func contend(ctx context.Context, address string, dev *verbs.Device) error {
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			c, err := dial(ctx, address, dev, uint32(i+1))
			if err != nil {
				return err
			}
			defer c.close()
			for range changes {
				token, err := c.lock(ctx)
				if err != nil {
					return err
				}
				value, err := c.read(ctx)
				if err != nil {
					return err
				}
				if err := c.write(ctx, token, value+1); err != nil {
					return err
				}
				if err := c.unlock(ctx, token); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c, err := dial(ctx, address, dev, clients+1)
	if err != nil {
		return err
	}
	defer c.close()
	value, err := c.read(ctx)
	if err != nil {
		return err
	}
	if value != clients*changes {
		return fmt.Errorf("%d changes were made and %d were counted", clients*changes, value)
	}
	fmt.Printf("%d changes under the lock, none lost\n", value)
	return nil
}

// lose makes a client lose the lock: another one considers it dead and takes over. Later writes of
// the first are refused.
func lose(ctx context.Context, address string, dev *verbs.Device) error {
	slow, err := dial(ctx, address, dev, 11)
	if err != nil {
		return err
	}
	defer slow.close()
	other, err := dial(ctx, address, dev, 12)
	if err != nil {
		return err
	}
	defer other.close()
	old, err := slow.lock(ctx)
	if err != nil {
		return err
	}
	token, err := other.takeOver(ctx, slow.name, old)
	if err != nil {
		return err
	}
	if err := other.write(ctx, token, 1000); err != nil {
		return err
	}
	var stale *staleError
	if err := slow.write(ctx, old, 1); !errors.As(err, &stale) {
		return fmt.Errorf("a write of a client that had lost the lock: %v", err)
	}
	fmt.Println(stale)
	if err := slow.unlock(ctx, old); !errors.Is(err, errLost) {
		return fmt.Errorf("the release of a lost lock: %v", err)
	}
	return other.unlock(ctx, token)
}

// serve accepts connections and sends each client the location of the words, until ctx is done.
func serve(ctx context.Context, ln *cm.Listener, pd *verbs.PD, mr *verbs.MR) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{PD: pd, MR: mr, Offer: true})
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
