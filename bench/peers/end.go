// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"io"
	"time"
)

// end runs one of the two processes of a job. Without an address it listens and prints "listening
// ADDRESS"; with one it connects, measures, and prints the result.
func end(args []string, out io.Writer) error {
	var j job
	fs := j.flags()
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 1 {
		return fmt.Errorf("one address at most: %q", fs.Args())
	}
	if err := j.check(); err != nil {
		return err
	}
	announce := func(addr string) { fmt.Fprintln(out, "listening", addr) }
	listen, connect := listenSIW, connectSIW
	switch j.over {
	case "tcp":
		listen, connect = listenTCP, connectTCP
	case "rsocket":
		listen, connect = listenRsocket, connectRsocket
	}
	if fs.NArg() == 0 {
		return listen(&j, announce)
	}
	f, err := connect(&j, fs.Arg(0))
	if err == nil {
		_, err = fmt.Fprintln(out, f)
	}
	return err
}

// figures are the result of a job: a single figure, or times in ascending order.
type figures struct {
	one   figure
	times []time.Duration
}

// readsName begins the line in which times are printed.
const readsName = "Read"

// String returns the single figure, or a line in the format of a benchmark.
func (f figures) String() string {
	if f.times == nil {
		return fmt.Sprintf("%.3f", f.one)
	}
	us := func(percent int) float64 { return float64(f.times[len(f.times)*percent/100].Nanoseconds()) / 1e3 }
	return fmt.Sprintf("%s %d %.1f p50-us %.1f p99-us", readsName, len(f.times), us(50), us(99))
}
