// SPDX-License-Identifier: BSD-3-Clause

// Command window lets several ranks share memory as MPI programs do: with one-sided put,
// fetch-and-op, and a fence.
//
//	window [-device NAME] [-listen ADDR]
//
// It needs a device with atomics: the user-space RNIC, InfiniBand, RoCE, or ib:NAME. All ranks are
// goroutines of this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"golang.org/x/sync/errgroup"

	_ "github.com/goverbs/goverbs/compat/ibcompat" // devices ib:NAME
	_ "github.com/goverbs/goverbs/usiw"            // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

const (
	ranks   = 3
	rounds  = 20
	tickets = 50 // per rank
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
	var windows []*window
	var addresses []string
	for rank := range ranks {
		// Each rank has a number for every rank, and one more.
		w, err := listenWindow(ctx, dev, listen, rank, 8*(ranks+1))
		if err != nil {
			return err
		}
		defer w.close()
		windows, addresses = append(windows, w), append(addresses, w.ln.Addr().String())
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, w := range windows {
		group.Go(func() error { return work(groupCtx, dev, w, addresses) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d ranks have seen all that was put in %d rounds, and drawn %d tickets\n", ranks, rounds,
		windows[0].word(8*ranks))
	return nil
}

// work is the program of a rank. In every round it puts a number into every rank's memory and
// checks the numbers it received; then it draws tickets from a word of rank 0.
func work(ctx context.Context, dev *verbs.Device, w *window, addresses []string) error {
	if err := w.join(ctx, dev, addresses); err != nil {
		return err
	}
	for round := range uint64(rounds) {
		for rank := range ranks {
			if err := w.put(ctx, rank, 8*w.rank, number(100*round+uint64(w.rank))); err != nil {
				return err
			}
		}
		if err := w.fence(ctx); err != nil {
			return err
		}
		for rank := range ranks {
			if got, want := w.word(8*rank), 100*round+uint64(rank); got != want {
				return fmt.Errorf("round %d: rank %d has %d of rank %d, not %d", round, w.rank, got, rank, want)
			}
		}
		// No rank may put its next number before all have checked.
		if err := w.fence(ctx); err != nil {
			return err
		}
	}
	var last uint64
	for i := range tickets {
		ticket, err := w.fetchAndAdd(ctx, 0, 8*ranks, 1)
		if err != nil {
			return err
		}
		if i > 0 && ticket <= last {
			return fmt.Errorf("rank %d: ticket %d after ticket %d", w.rank, ticket, last)
		}
		last = ticket
	}
	return w.fence(ctx)
}
