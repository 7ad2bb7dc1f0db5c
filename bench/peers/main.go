// SPDX-License-Identifier: BSD-3-Clause

// Command peers compares the user-space RNIC with bare TCP in Go and in C, libfabric and UCX on this host, over
// loopback. "make bench-peers" builds and installs what it needs; docs/performance.md says what the figures mean.
//
//	peers [flags]                        everything
//	peers end [flags]                    one of two processes by hand: listens at an address that it prints
//	peers end [flags] ADDRESS            connects to it and prints the figure
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"time"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "end" {
		err = end(os.Args[2:], os.Stdout)
	} else {
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

func measure(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	t := &tools{self: self}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	rounds := fs.Int("rounds", 5, "how often everything is measured")
	only := fs.String("only", "", "measure only what matches this `regexp`, and print no ratios")
	out := fs.String("out", "", "write the tables into this markdown `file` too")
	fs.StringVar(&t.pingpong, "pingpong", "bin/pingpong", "the `program` of bench/tcp/pingpong.c")
	fs.StringVar(&t.siwtest, "siwtest", "bin/siw.test", "the test `binary` of package siw")
	fs.DurationVar(&t.seconds, "time", 300*time.Millisecond, "how long a sample takes")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || *rounds < 1 || t.seconds <= 0 {
		return fmt.Errorf("wrong arguments: %q; -help lists them", args)
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	p := makePlan(t)
	var subjects []*subject
	for _, s := range p.subjects {
		if chosen.MatchString(s.name) {
			subjects = append(subjects, s)
		}
	}
	r := results{}
	foreign, failures := r.take(subjects, *rounds)
	if *only != "" {
		p = &plan{subjects: subjects}
	}
	counted := "not run"
	if *only == "" {
		counted = t.counted()
	}
	head := fmt.Sprintf("%s. %d rounds. Processors' time taken by others during a sample, median: %.1f of %d.",
		host(), *rounds, foreign, processors())
	fmt.Printf("\n%s\n\n%s", head, report(p, r, counted, false))
	if *out != "" && *only == "" {
		err = record(*out, head+"\n\n"+report(p, r, counted, true))
	}
	return errors.Join(err, failures)
}

// take measures every subject in every round: one round forwards, the next one backwards, so that what stands side by side
// has come first as often as second. It returns how many processors others used meanwhile.
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
			} else {
				others = append(others, (busyTime()-busy-used).Seconds()/time.Since(start).Seconds())
			}
			r[s] = append(r[s], f)
			fmt.Printf("round %d of %d: %s: %s %s\n", round+1, rounds, s.name, number(f), s.unit)
			time.Sleep(50 * time.Millisecond)
		}
	}
	return median(others), failures
}
