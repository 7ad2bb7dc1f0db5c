// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	clientsPatience = 5 * time.Minute  // for everything the clients do in one step
	clientsStart    = 20 * time.Second // for connecting them
)

// clientJob is the first line that a client process reads. Step names follow, as JSON strings.
type clientJob struct {
	Address string `json:"address"`
	Token   uint64 `json:"token"`
	Client  int    `json:"client"` // from 0
	Ops     int    `json:"ops"`
	Masked  bool   `json:"masked"` // the devices have masked atomics

	// --break entries that name a comparison: a client that finds a difference exits
	Breaks []string `json:"breaks,omitempty"`
}

// clientReport is a line written by a client process: its operations since the last report, and at
// the end of a step the sums.
type clientReport struct {
	Ops  int  `json:"ops"`
	Done bool `json:"done,omitempty"` // connected, or finished with the step

	Taken   uint64 `json:"taken,omitempty"`   // lock: acquisitions
	Tries   uint64 `json:"tries,omitempty"`   // lock: CmpSwaps that they took
	Sum     uint64 `json:"sum,omitempty"`     // counter: the total that it added
	Tickets uint64 `json:"tickets,omitempty"` // counter: the sum of its tickets
	Squares uint64 `json:"squares,omitempty"` // counter: the sum of their squares, modulo 2^64
}

// clients are the client processes of a demo.
type clients struct{ processes []*process }

// startClients starts the client processes and waits until they are connected.
func (d *driver) startClients(ctx context.Context) (cs *clients, err error) {
	cs = new(clients)
	breaks := slices.DeleteFunc(slices.Clone(d.o.Breaks), func(b string) bool { return !strings.Contains(b, ":") })
	for i := range d.o.Clients {
		p, err := startProcess(ClientCommand, "--device", d.end.ctx.Device().Name())
		if err != nil {
			return cs, err
		}
		cs.processes = append(cs.processes, p)
		d.result.PIDs = append(d.result.PIDs, p.pid())
		job := clientJob{Address: d.end.id.RemoteAddr().String(), Token: d.peer.Token, Client: i,
			Ops: d.o.Ops, Masked: d.end.has(maskedAtomics), Breaks: breaks}
		if err := p.tell(job); err != nil {
			return cs, cs.lost(i, err)
		}
	}
	_, err = cs.collect(ctx, clientsStart, nil)
	return cs, err
}

// run has all clients perform a step concurrently and returns their reports.
func (cs *clients) run(ctx context.Context, step string, out *console) ([]clientReport, error) {
	if cs == nil {
		return nil, errors.New("the client processes were not started")
	}
	for i, p := range cs.processes {
		if err := p.tell(step); err != nil {
			return nil, cs.lost(i, err)
		}
	}
	return cs.collect(ctx, clientsPatience, out)
}

// collect reads every client's reports up to the final one.
func (cs *clients) collect(ctx context.Context, patience time.Duration, out *console) ([]clientReport, error) {
	type outcome struct {
		client int
		report clientReport
		err    error
	}
	outcomes := make(chan outcome, len(cs.processes))
	for i, p := range cs.processes {
		go func() {
			for {
				var r clientReport
				if err := p.stdout.Decode(&r); err != nil {
					outcomes <- outcome{i, r, err}
					return
				}
				if out != nil {
					out.progress(r.Ops, 0)
				}
				if r.Done {
					outcomes <- outcome{i, r, nil}
					return
				}
			}
		}()
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	reports := make([]clientReport, len(cs.processes))
	for range cs.processes {
		select {
		case o := <-outcomes:
			if o.err != nil {
				return nil, cs.lost(o.client, o.err)
			}
			reports[o.client] = o.report
		case <-late.C:
			return nil, fmt.Errorf("the client processes have not finished after %v", patience)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return reports, nil
}

// lost explains why a client stopped communicating.
func (cs *clients) lost(client int, err error) error {
	if werr := cs.processes[client].wait(endPatience); werr != nil {
		err = werr
	}
	return fmt.Errorf("client process %d: %w", client, err)
}

// end lets the clients disconnect and waits for them.
func (cs *clients) end() error {
	cs.letGo()
	var err error
	for i, p := range cs.processes {
		if perr := p.wait(driverPatience); perr != nil {
			err = errors.Join(err, fmt.Errorf("client process %d: %w", i, perr))
		}
	}
	return err
}

// letGo tells the clients to exit. It may be called on nil.
func (cs *clients) letGo() {
	if cs == nil {
		return
	}
	for _, p := range cs.processes {
		p.letGo()
	}
}

// wait waits for clients that were told to exit, and kills those still running at the deadline. It
// may be called on nil.
func (cs *clients) wait(deadline time.Time) {
	if cs == nil {
		return
	}
	for _, p := range cs.processes {
		_ = p.wait(time.Until(deadline)) // how they exit is irrelevant here
	}
}
