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

// Scenario is a program whose trace is the same on every fabric.
type Scenario struct {
	Name string // "row04/write-imm"
	// Reduced says what the trace has, and what not because it may happen in several orders ("" =
	// it has everything).
	Reduced string

	run func(p *program)
}

// Row is the number in the name.
func (s *Scenario) Row() int {
	row, _, _ := strings.Cut(strings.TrimPrefix(s.Name, "row"), "/")
	n, _ := strconv.Atoi(row)
	return n
}

// All lists the scenarios, by rows.
func All() []*Scenario {
	all := slices.Concat(waiting, confirmation, failures, immediates, atomics, order, elements, setup, notification,
		lengths, queues, ends, access, byHand)
	slices.SortStableFunc(all, func(a, b *Scenario) int { return a.Row() - b.Row() })
	return all
}

// Fabric is where a scenario runs: two devices, which may be the same, that reach each other.
type Fabric struct {
	Name            string // "usiw0+siw0"
	Active, Passive *verbs.Device
	Listen          string // where the passive end listens, "host:port" with port 0

	// Source is the address of the active end (zero = the route chooses it).
	Source netip.AddrPort
	// Host calls what opens the listener, in a network namespace for example (nil = it is called as
	// it is).
	Host func(open func())
}

// address is the IP address of Listen.
func (f Fabric) address() netip.Addr {
	at, err := netip.ParseAddrPort(f.Listen)
	must(err)
	return at.Addr()
}

// Limit is how long a scenario may take on a fabric. Three times 64 MiB take more than a minute on
// an emulated processor that is not idle.
const Limit = 4 * time.Minute

// Run runs the scenario. What does not happen within [Limit] is an event of its own, which ends the
// trace. The error is about what is not the scenario's matter: a device that cannot be opened,
// memory that cannot be registered.
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
	return nil, nil // see above
}

// failure ends a program: err is what Run returns, nil if the trace has the reason.
type failure struct{ err error }

// must ends the program if err is not nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}
