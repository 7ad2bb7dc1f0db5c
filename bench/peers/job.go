// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// job is a measurement between two processes of this program: one listens and one, which measures,
// connects to it.
type job struct {
	over    string        // "usiw", "tcp" or "rsocket"
	work    string        // "stream", "pingpong", with siw "fetchadd" or "reads", with rsocket "turns"
	device  string        // rsocket: a device of the kernel, "" = the user-space RNIC
	host    string        // rsocket: the address of that device
	mode    string        // how it waits: modeGo and so on
	crc     bool          // usiw, rsocket: CRC32C on
	mtu     int           // usiw, rsocket: bytes of the largest FPDU, 0 = what TCP allows
	conns   int           // stream: connections, each with a goroutine of its own on either side
	size    int           // bytes of a message
	depth   int           // messages in progress; of a stream over siw Writes, of fetchadd operations
	count   int           // turns: messages that one side sends before the other one does
	turns   int           // turns: how often each does
	program string        // reads: what the program does from whose memory is read
	pause   time.Duration // reads: how long it computes at a time
	seconds time.Duration // how long it measures
}

const (
	workReads = "reads" // Reads, one at a time, from the memory of a program
	workTurns = "turns" // what rstream(1) does: one side sends some messages, then the other one does
)

// The program of workReads computes, again and again; between, it
const (
	programComputes = "computes" // does nothing else
	programAnswers  = "answers"  // answers a message if one has come
	programWaits    = "waits"    // sleeps until a message comes, and answers it
	programPolls    = "polls"    // polls for a while
)

const (
	modeGo   = "go"   // a goroutine that waits sleeps at once
	modeSpin = "spin" // it polls for a while before
	modePoll = "poll" // it never sleeps
)

// spin is how long modeSpin polls.
const spin = 50 * time.Microsecond

// memory is what each side of a connection sends from and receives into, turn by turn.
const memory = 4 << 20

// flags are the fields as flags of the command line.
func (j *job) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("peers end", flag.ContinueOnError)
	fs.StringVar(&j.over, "over", "usiw", "`what` is measured: usiw, tcp or rsocket")
	fs.StringVar(&j.work, "work", "pingpong", "`work`: stream, pingpong, fetchadd, reads or turns")
	fs.StringVar(&j.device, "device", "", "rsocket: `name` of a device of the kernel")
	fs.StringVar(&j.host, "host", "127.0.0.1", "rsocket: the `address` at which to listen")
	fs.StringVar(&j.mode, "mode", modeGo, "`mode` of waiting: go, spin or poll")
	fs.BoolVar(&j.crc, "crc", true, "usiw, rsocket: CRC32C")
	fs.IntVar(&j.mtu, "mtu", 0, "usiw, rsocket: `bytes` of the largest FPDU")
	fs.IntVar(&j.conns, "conns", 1, "stream: connections")
	fs.IntVar(&j.size, "size", 64, "`bytes` of a message")
	fs.IntVar(&j.depth, "depth", 1, "messages in progress")
	fs.IntVar(&j.count, "count", 1, "turns: messages that one side sends before the other one does")
	fs.IntVar(&j.turns, "turns", 1, "turns: how often each does")
	fs.StringVar(&j.program, "program", programComputes, "reads: the other `program` computes, answers, waits or polls")
	fs.DurationVar(&j.pause, "pause", 500*time.Microsecond, "reads: how long it computes at a time")
	fs.DurationVar(&j.seconds, "time", 300*time.Millisecond, "how long to measure")
	return fs
}

// args is the command line that flags reads.
func (j *job) args() []string {
	return []string{"-over=" + j.over, "-work=" + j.work, "-mode=" + j.mode, "-device=" + j.device, "-host=" + j.host,
		fmt.Sprintf("-crc=%t", j.crc), fmt.Sprintf("-mtu=%d", j.mtu), fmt.Sprintf("-conns=%d", j.conns),
		fmt.Sprintf("-size=%d", j.size), fmt.Sprintf("-depth=%d", j.depth), fmt.Sprintf("-count=%d", j.count),
		fmt.Sprintf("-turns=%d", j.turns), "-program=" + j.program, fmt.Sprintf("-pause=%v", j.pause),
		fmt.Sprintf("-time=%v", j.seconds)}
}

// check returns what is wrong with a job that was given on the command line.
func (j *job) check() error {
	is := func(v, list string) bool { return strings.Contains(" "+list+" ", " "+v+" ") }
	switch {
	case !is(j.over, "siw tcp rsocket"):
		return fmt.Errorf("-over=%s: want usiw, tcp or rsocket", j.over)
	case !is(j.work, "stream pingpong fetchadd reads turns"), is(j.work, "fetchadd reads") && j.over != "usiw",
		j.work == workTurns && j.over != "rsocket":
		return fmt.Errorf("-work=%s: not over %s", j.work, j.over)
	case !is(j.mode, "go spin poll"):
		return fmt.Errorf("-mode=%s: want go, spin or poll", j.mode)
	case j.device != "" && j.over != "rsocket":
		return fmt.Errorf("-device=%s: not over %s", j.device, j.over)
	case j.mode == modePoll && j.over == "rsocket":
		return fmt.Errorf("-mode=%s: a Read of package rsocket sleeps", j.mode)
	case j.size < 1 || j.size > memory:
		return fmt.Errorf("-size=%d: want 1 to %d", j.size, memory)
	case j.work == "fetchadd" && j.size != 8:
		return fmt.Errorf("-size=%d: fetchadd is of 8 bytes", j.size)
	case !is(j.program, "computes answers waits polls"):
		return fmt.Errorf("-program=%s: want computes, answers, waits or polls", j.program)
	case j.pause <= 0:
		return fmt.Errorf("-pause=%v: want a positive time", j.pause)
	case j.conns < 1 || j.conns > j.mostConns():
		return fmt.Errorf("-conns=%d: want 1 to %d", j.conns, j.mostConns())
	case j.depth < 1 || j.depth > 64 || j.depth*j.size > memory:
		return fmt.Errorf("-depth=%d: want 1 to 64, and at most %d bytes in progress", j.depth, memory)
	case j.count < 1 || j.turns < 1:
		return fmt.Errorf("-count=%d -turns=%d: want 1 or more of each", j.count, j.turns)
	case j.seconds <= 0:
		return fmt.Errorf("-time=%v: want a positive time", j.seconds)
	}
	return nil
}

// mostConns is how many connections a job can have. Those of a stream that is not of Writes have
// little memory if they are many.
func (j *job) mostConns() int {
	switch {
	case j.work != "stream":
		return 1
	case j.over == "usiw":
		return fewConns
	}
	return 1000
}

const fewConns = 64

// memory is what each side of a connection of a byte stream sends from and receives into, turn by
// turn.
func (j *job) memory() int {
	if j.conns > fewConns || j.work == workTurns {
		return j.size
	}
	return memory
}

// touch fills memory, so that it has pages of its own: those that nobody has written to are all the
// same one, which is always in the processor's cache.
func touch(mem []byte) {
	for i := range mem {
		mem[i] = byte(i)
	}
}

// figure is what a job measures: of a stream 10^6 bytes per second, of pingpong microseconds one
// way (half of the mean round trip), of fetchadd operations per second, of turns microseconds for
// each message.
type figure = float64

// rate returns the figure of a stream that moved n bytes.
func rate(n int, d time.Duration) figure { return float64(n) / 1e6 / d.Seconds() }

// oneWay returns the figure of n round trips.
func oneWay(n int, d time.Duration) figure { return float64(d.Nanoseconds()) / 1e3 / float64(n) / 2 }
