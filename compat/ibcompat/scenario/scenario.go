// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Scenario is a program with the same trace on every fabric.
type Scenario struct {
	Name string // "row04/write-imm"
	// Reduced states what the trace contains, and what it omits because the order may vary ("" = it
	// contains everything).
	Reduced string

	run func(p *program)
}

// Row returns the row number in the name.
func (s *Scenario) Row() int {
	row, _, _ := strings.Cut(strings.TrimPrefix(s.Name, "row"), "/")
	n, _ := strconv.Atoi(row)
	return n
}

// All returns the scenarios, ordered by row.
func All() []*Scenario {
	all := slices.Concat(waiting, confirmation, failures, immediates, atomics, order, elements, setup, notification,
		lengths, queues, ends, access, byHand)
	slices.SortStableFunc(all, func(a, b *Scenario) int { return a.Row() - b.Row() })
	return all
}

// Fabric is where a scenario runs: two devices, possibly the same one, that can reach each other.
type Fabric struct {
	Name            string // "usiw0+siw0"
	Active, Passive *verbs.Device
	Listen          string // listening address of the passive end, "host:port" with port 0

	// Source is the address of the active end (zero = chosen by the route).
	Source netip.AddrPort
	// Host calls the function that opens the listener, for example in a network namespace (nil = it
	// is called directly).
	Host func(open func())
}

// address returns the IP address of Listen.
func (f Fabric) address() netip.Addr {
	at, err := netip.ParseAddrPort(f.Listen)
	must(err)
	return at.Addr()
}

// Limit is the maximum duration of a scenario on a fabric. Three transfers of 64 MiB take more than
// a minute on a busy emulated processor.
const Limit = 4 * time.Minute

// Run runs the scenario. If something does not happen within [Limit], the trace ends with an event
// that says so. The error reports failures unrelated to the scenario: a device that cannot be
// opened, memory that cannot be registered.
func (s *Scenario) Run(ctx context.Context, f Fabric) (t Trace, err error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	p := &program{ctx: ctx, fabric: f}
	defer func() {
		if stop := recover(); stop != nil {
			failed, ok := stop.(failure)
			if !ok {
				panic(stop)
			}
			err = failed.err
		}
		t = p.trace
		if err = errors.Join(err, p.close()); err != nil {
			err = fmt.Errorf("%s on %s: %w", s.Name, f.Name, err)
		}
	}()
	s.run(p)
	return nil, nil // set by the deferred function
}

// failure ends a program. err is what Run returns, nil if the trace already shows the reason.
type failure struct{ err error }

// must ends the program if err is not nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}
