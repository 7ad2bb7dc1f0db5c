// SPDX-License-Identifier: BSD-3-Clause

// Command peers compares the user-space RNIC with plain TCP in Go and in C, libfabric and UCX on
// this host, over loopback; C programs on the RNIC with the Go API; and package rsocket with C on
// kernel devices. "make bench-peers" and "make bench-guest" build and install what it needs;
// docs/performance.md explains the figures.
//
//	peers [flags]                       everything
//	peers -kernel DEVICE@ADDRESS,...    package rsocket and librdmacm's rstream on kernel devices
//	peers end [flags]                   one process of a pair: listens and prints its address
//	peers end [flags] ADDRESS           connects to it and prints the figure
//	peers compute                       computes until its standard input ends
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"sync/atomic"
	"time"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "end":
		err = end(os.Args[2:], os.Stdout)
	case len(os.Args) == 2 && os.Args[1] == "compute":
		compute(os.Stdin)
	default:
		err = measure(os.Args[1:])
	}
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// fewestRounds is the minimum number of rounds for tables that are kept: a median of fewer means
// little.
const fewestRounds = 5

// options are the flags of a measurement.
type options struct {
	*tools
	rounds int
	only   *regexp.Regexp // nil = everything
	out    string
	busy   bool
	kernel []kernelDevice // empty = the user-space RNIC and its peers
}

func parse(args []string) (*options, error) {
	t := &tools{}
	o := &options{tools: t}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", fewestRounds, "how often everything is measured")
	only := fs.String("only", "", "measure only what matches this `regexp`, and print no ratios")
	fs.StringVar(&o.out, "out", "",
		fmt.Sprintf("write the tables into this markdown `file` too; needs %d rounds or more", fewestRounds))
	fs.StringVar(&t.pingpong, "pingpong", "bin/pingpong", "the `program` of bench/tcp/pingpong.c")
	fs.StringVar(&t.usiwtest, "usiwtest", "bin/usiw.test", "the test `binary` of package usiw")
	fs.StringVar(&t.ibtest, "ibtest", "bin/ibcompat.test", "the test `binary` of package ibcompat")
	fs.StringVar(&t.goverbs, "goverbs", "bin/goverbs", "the goverbs `command`")
	fs.BoolVar(&o.busy, "busy", false, "measure beside a process that computes")
	kernel := fs.String("kernel", "",
		"compare package rsocket with rstream on these `devices` of the kernel instead, as rxe0@10.78.0.1,siw0@10.77.0.1")
	fs.DurationVar(&t.seconds, "time", 300*time.Millisecond, "how long a sample takes")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 || o.rounds < 1 || t.seconds <= 0 {
		return nil, fmt.Errorf("wrong arguments: %q; -help lists them", args)
	}
	if o.out != "" && o.rounds < fewestRounds {
		return nil, fmt.Errorf("-rounds %d: the tables that -out %s keeps need %d rounds or more", o.rounds, o.out,
			fewestRounds)
	}
	if *kernel != "" {
		if o.busy {
			return nil, errors.New("-busy: not with -kernel")
		}
		var err error
		if o.kernel, err = kernelDevices(*kernel); err != nil {
			return nil, err
		}
	}
	if *only != "" {
		var err error
		if o.only, err = regexp.Compile(*only); err != nil {
			return nil, err
		}
		if o.out != "" {
			return nil, fmt.Errorf("-only %s: the tables that -out %s keeps need everything", *only, o.out)
		}
	}
	return o, nil
}

func measure(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	if o.busy {
		stop, err := o.beside()
		if err != nil {
			return err
		}
		defer stop()
	}
	p, mark := makePlan(o.tools), beginMark
	switch {
	case len(o.kernel) > 0:
		p, mark = kernelPlan(o.tools, o.kernel), kernelMark
	case o.busy:
		mark = busyMark
	}
	if o.only != nil {
		some := &plan{}
		for _, s := range p.subjects {
			if o.only.MatchString(s.name) {
				some.subjects = append(some.subjects, s)
			}
		}
		p = some
	}
	r := results{}
	foreign, failures := r.take(p.subjects, o.rounds)
	if o.only == nil && len(o.kernel) == 0 {
		p.counted = o.counted()
	}
	head := fmt.Sprintf("%s. %d rounds. Processors' time taken by others during a sample, median: %.2f of %d.",
		host(), o.rounds, foreign, processors())
	if o.busy {
		head += " One of the others is a process that computes."
	}
	head += hangs(p.subjects)
	fmt.Printf("\n%s\n\n%s", head, report(p, r, false))
	if o.out != "" {
		err = record(o.out, mark, head+"\n\n"+report(p, r, true))
	}
	return errors.Join(err, failures)
}

// beside starts a process that computes until stop is called.
func (t *tools) beside() (stop func(), err error) {
	cmd := exec.Command(t.self, "compute")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return func() { _, _ = in.Close(), cmd.Wait() }, nil
}

// compute keeps one processor busy until r ends.
func compute(r io.Reader) {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, r)
		over.Store(true)
	}()
	for !over.Load() {
	}
}

// take measures every subject in every round. Rounds alternate between forward and backward order,
// so that of two neighbours each comes first equally often. It returns how many processors other
// processes used in the meantime.
func (r results) take(subjects []*subject, rounds int) (foreign figure, failures error) {
	var others []figure
	for round := range rounds {
		for i := range subjects {
			s := subjects[i]
			if round%2 == 1 {
				s = subjects[len(subjects)-1-i]
			}
			busy, start := busyTime(), time.Now()
			f, used, err := s.run()
			if err != nil {
				f, failures = math.NaN(), errors.Join(failures, fmt.Errorf("%s: %w", s.name, err))
			} else if used > 0 { // a separate run
				others = append(others, (busyTime()-busy-used).Seconds()/time.Since(start).Seconds())
			}
			r[s] = append(r[s], f)
			fmt.Printf("round %d of %d: %s: %s %s\n", round+1, rounds, s.name, number(f), s.unit)
			time.Sleep(50 * time.Millisecond)
		}
	}
	return median(others), failures
}
