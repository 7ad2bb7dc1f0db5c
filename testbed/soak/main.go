// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

// Command soak keeps devices busy for a while, with connections that end in every way and processes
// that are killed. Then it checks that nothing is left over, in the process and in the kernel: make
// soak-guest.
//
//	soak [-duration 10m] [-seed N] [-devices usiw,siw0,rxe0]
//
// One process, the parent, runs servers, and clients that use its own servers and those of its
// children. The children do the same and are killed at random. Every byte is checked. When all have
// exited, the initial process checks the kernel. The exit status is 0 if there was no error.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

func main() {
	duration := flag.Duration("duration", 10*time.Minute, "how long")
	seed := flag.Uint64("seed", rand.Uint64(),
		"seed of what is chosen at random (it does not choose how the processes interleave)")
	devices := flag.String("devices", "usiw,siw0,rxe0",
		"what to use, separated by commas; usiw is package usiw's device")
	servers := flag.String("servers", "", "be a child: DEVICE=ADDRESS of the parent's servers, separated by commas")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "soak: no argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	var err error
	switch {
	case *servers != "":
		err = child(*seed, strings.Split(*servers, ","), os.Stdin, os.Stdout)
	case os.Getenv(parentVariable) != "":
		err = parent(*duration, *seed, strings.Split(*devices, ","))
	default:
		fmt.Printf("soak: %v on %s, seed %d\n", *duration, *devices, *seed)
		err = supervise(*duration, *seed, *devices)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
