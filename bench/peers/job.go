// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// job is a measurement between two processes of this program: one listens, and the other connects
// to it and measures.
type job struct {
	over    string        // "usiw", "tcp" or "rsocket"
	work    string        // "stream", "pingpong", with usiw "fetchadd" or "reads", with rsocket "turns"
	device  string        // rsocket: a kernel device, "" = the user-space RNIC
	host    string        // rsocket: that device's address
	mode    string        // how it waits: modeGo and so on
	crc     bool          // usiw, rsocket: CRC32C enabled
	mtu     int           // usiw, rsocket: maximum FPDU size in bytes, 0 = what TCP allows
	conns   int           // stream: connections, each with its own goroutine on either side
	size    int           // bytes of a message
	depth   int           // messages in progress; Writes of a stream over usiw, operations of fetchadd
	count   int           // turns: messages that one side sends before the other does
	turns   int           // turns: number of turns per side
	program string        // reads: what the program whose memory is read does
	pause   time.Duration // reads: how long it computes at a stretch
	seconds time.Duration // duration of the measurement
}

const (
	workReads = "reads" // Reads, one at a time, from a program's memory
	workTurns = "turns" // as rstream(1): one side sends some messages, then the other does
)

// The program of workReads computes repeatedly; in between, it
const (
	programComputes = "computes" // does nothing else
	programAnswers  = "answers"  // answers a message if one has arrived
	programWaits    = "waits"    // sleeps until a message arrives, and answers it
	programPolls    = "polls"    // polls for a while
)

const (
	modeGo   = "go"   // a waiting goroutine sleeps immediately
	modeSpin = "spin" // it polls for a while first
	modePoll = "poll" // it never sleeps
)

// spin is how long modeSpin polls.
const spin = 50 * time.Microsecond

// memory is the size of the memory that each side of a connection sends from and receives into, in
// rotation.
const memory = 4 << 20

// flags returns the command-line flags for the fields.
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

// args returns the command line that flags parses.
func (j *job) args() []string {
	return []string{"-over=" + j.over, "-work=" + j.work, "-mode=" + j.mode, "-device=" + j.device, "-host=" + j.host,
		fmt.Sprintf("-crc=%t", j.crc), fmt.Sprintf("-mtu=%d", j.mtu), fmt.Sprintf("-conns=%d", j.conns),
		fmt.Sprintf("-size=%d", j.size), fmt.Sprintf("-depth=%d", j.depth), fmt.Sprintf("-count=%d", j.count),
		fmt.Sprintf("-turns=%d", j.turns), "-program=" + j.program, fmt.Sprintf("-pause=%v", j.pause),
		fmt.Sprintf("-time=%v", j.seconds)}
}

// check returns what is wrong with a job given on the command line.
func (j *job) check() error {
	is := func(v, list string) bool { return strings.Contains(" "+list+" ", " "+v+" ") }
	switch {
	case !is(j.over, "usiw tcp rsocket"):
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

// mostConns returns the maximum number of connections of a job. With many connections, byte streams
// use less memory for each.
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

// memory returns the size of the memory that each side of a byte-stream connection sends from and
// receives into, in rotation.
func (j *job) memory() int {
	if j.conns > fewConns || j.work == workTurns {
		return j.size
	}
	return memory
}

// touch writes to all of mem, so that it has its own pages: untouched pages are all the same one,
// which is always in the processor's cache.
func touch(mem []byte) {
	for i := range mem {
		mem[i] = byte(i)
	}
}

// figure is the result of a measurement: for stream 10^6 bytes per second, for pingpong
// microseconds one way (half of the mean round trip), for fetchadd operations per second, for turns
// microseconds per message.
type figure = float64

// rate returns the figure of a stream that moved n bytes.
func rate(n int, d time.Duration) figure { return float64(n) / 1e6 / d.Seconds() }

// oneWay returns the figure of n round trips.
func oneWay(n int, d time.Duration) figure { return float64(d.Nanoseconds()) / 1e3 / float64(n) / 2 }
