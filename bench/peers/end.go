// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"io"
)

// end is one of the two processes of a job. Without an address it listens and prints "listening ADDRESS"; with one it
// connects, measures, and prints the figure.
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
	if j.over == "tcp" {
		listen, connect = listenTCP, connectTCP
	}
	if fs.NArg() == 0 {
		return listen(&j, announce)
	}
	f, err := connect(&j, fs.Arg(0))
	if err == nil {
		_, err = fmt.Fprintf(out, "%.3f\n", f)
	}
	return err
}
