// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// subject is something that is measured once per round.
type subject struct {
	name string
	unit string
	less bool // smaller is better
	run  func() (f figure, used time.Duration, err error)
	hung int // runs that did not finish
}

const (
	unitRate = "MB/s"  // 10^6 bytes per second
	unitTime = "us"    // one way
	unitOps  = "ops/s" // operations
	unitBack = "us there and back"
	unitOne  = "us each"
	unitCall = "ns a call"
)

// tools are the external programs. A name that is not a path is looked up in PATH.
type tools struct {
	self     string // this program
	pingpong string // bench/tcp/pingpong.c
	usiwtest string // the tests of package usiw
	ibtest   string // the tests of package ibcompat
	goverbs  string // cmd/goverbs, with the library it preloads next to it
	seconds  time.Duration
}

// of returns a subject for a job of this program.
func (t *tools) of(name string, j job) *subject {
	p := t.ends(j)
	s := &subject{name: name, unit: unitRate}
	switch j.work {
	case "pingpong":
		s.unit, s.less = unitTime, true
	case "fetchadd":
		s.unit = unitOps
	case workTurns:
		s.unit, s.less = j.turnsUnit()
	}
	s.run = p.figure(func(out string) (figure, error) {
		f, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		return j.ofTurns(f), err
	})
	return s
}

// ends returns the two processes of a job of this program.
func (t *tools) ends(j job) *pair {
	j.seconds = t.seconds
	if j.over == "" {
		j.over = "usiw"
	}
	if j.mode == "" {
		j.mode = modeGo
	}
	j.conns, j.count, j.turns = max(j.conns, 1), max(j.count, 1), max(j.turns, 1)
	if j.host == "" {
		j.host = "127.0.0.1"
	}
	if j.work != workReads {
		j.program, j.pause = programComputes, time.Millisecond // unused
	}
	args := j.args()
	return &pair{announces: true, listen: append([]string{t.self, "end"}, args...),
		connect: append(append([]string{t.self, "end"}, args...), "{addr}")}
}

// figure returns a function that runs the pair and extracts the figure from its output.
func (p *pair) figure(find func(out string) (figure, error)) func() (figure, time.Duration, error) {
	return func() (figure, time.Duration, error) {
		out, used, err := p.run()
		if err != nil {
			return 0, 0, err
		}
		f, err := find(out)
		if err != nil {
			err = fmt.Errorf("%s prints %q: %w", strings.Join(p.connect, " "), out, err)
		}
		return f, used, err
	}
}

// cPingPong is the ping-pong in C, bench/tcp/pingpong.c.
func (t *tools) cPingPong(size, count int) *subject {
	line := []string{t.pingpong, strconv.Itoa(size), strconv.Itoa(count)}
	p := pair{announces: true, listen: line, connect: append(line[:len(line):len(line)], "{port}")}
	return &subject{name: fmt.Sprintf("C TCP, busy poll, %s ping-pong", byteSize(size)), unit: unitTime, less: true,
		run: p.figure(func(out string) (figure, error) { return strconv.ParseFloat(strings.TrimSpace(out), 64) })}
}

// fabric is libfabric's ping-pong over its TCP provider.
func fabric(size, count int) *subject {
	line := []string{"fi_pingpong", "-p", "tcp", "-e", "msg", "-S", strconv.Itoa(size), "-I", strconv.Itoa(count)}
	p := pair{listen: append(line[:len(line):len(line)], "-B", "{port}"),
		connect: append(line[:len(line):len(line)], "-P", "{port}", "127.0.0.1")}
	return &subject{name: fmt.Sprintf("libfabric tcp, %s ping-pong", byteSize(size)), unit: unitTime, less: true,
		run: p.figure(fabricFigure)}
}

// fabricFigure extracts the one-way time from a table such as
//
//	bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
//	64      30k     =30k     3.6m        0.38s     10.11       6.33       0.16
func fabricFigure(out string) (figure, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 2 {
		return 0, fmt.Errorf("no table")
	}
	head, last := strings.Fields(lines[0]), strings.Fields(lines[len(lines)-1])
	for i, h := range head {
		if h == "usec/xfer" && i < len(last) {
			return strconv.ParseFloat(last[i], 64)
		}
	}
	return 0, fmt.Errorf("no column usec/xfer")
}

// turnsUnit returns the unit of a job of turns, and whether less is better: the one-way time if
// each turn is one message, otherwise the rate.
func (j *job) turnsUnit() (unit string, less bool) {
	if j.count == 1 {
		return unitTime, true
	}
	return unitRate, false
}

// ofTurns returns the figure of a job of turns with us microseconds per message.
func (j *job) ofTurns(us figure) figure {
	if j.work != workTurns || j.count == 1 {
		return us
	}
	return figure(j.size) / us
}

// rstreamLimit bounds a run of rstream, and rstreamTries how often it is retried after a hang: on
// siw, two C programs sometimes wait for each other forever.
const (
	rstreamLimit = 20 * time.Second
	rstreamTries = 4
)

// rstream is librdmacm's program that does the same as workTurns, with C rsockets. Its table is
// like fi_pingpong's.
func rstream(name string, j job, option string) *subject {
	line := []string{"rstream", "-p", "{port}", "-T", option, "-S", strconv.Itoa(j.size), "-C", strconv.Itoa(j.count),
		"-I", strconv.Itoa(j.turns)}
	p := pair{host: j.host, device: j.device, limit: rstreamLimit,
		listen:  append(line[:len(line):len(line)], "-b", j.host),
		connect: append(line[:len(line):len(line)], "-s", j.host)}
	s := &subject{name: name}
	s.unit, s.less = j.turnsUnit()
	once := p.figure(func(out string) (figure, error) {
		f, err := fabricFigure(out)
		return j.ofTurns(f), err
	})
	s.run = func() (figure, time.Duration, error) { return s.again(once) }
	return s
}

// again runs a subject until it does not hang. It reports and counts hangs.
func (s *subject) again(once func() (figure, time.Duration, error)) (f figure, used time.Duration, err error) {
	for range rstreamTries {
		if f, used, err = once(); !errors.Is(err, errHung) {
			break
		}
		s.hung++
		fmt.Printf("%s: %v\n", s.name, err)
	}
	return f, used, err
}

// hangs reports how often subjects hung.
func hangs(subjects []*subject) string {
	var said []string
	for _, s := range subjects {
		if s.hung > 0 {
			said = append(said, fmt.Sprintf("%s %d", s.name, s.hung))
		}
	}
	if said == nil {
		return ""
	}
	return " Runs that hung, and were tried again: " + strings.Join(said, "; ") + "."
}

// ucx is a test of UCX's ucx_perftest over TCP, whose result is in the named column.
func ucx(name, unit, column string, count int, args ...string) *subject {
	line := []string{"ucx_perftest", "-p", "{port}"}
	p := pair{listen: line, env: []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_WARN_UNUSED_ENV_VARS=n"}}
	p.connect = append(append(line[:len(line):len(line)], "127.0.0.1", "-f", "-v", "-n", strconv.Itoa(count),
		"-w", strconv.Itoa(count/10)), args...)
	return &subject{name: "UCX tcp, " + name, unit: unit, less: unit == unitTime,
		run: p.figure(func(out string) (figure, error) {
			f, err := ucxFigure(out, column)
			if unit == unitRate {
				f *= 1 << 20 / 1e6
			}
			return f, err
		})}
}

// ucxFigure extracts a column of the last line in comma-separated output.
func ucxFigure(out, column string) (figure, error) {
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) < 2 {
		return 0, fmt.Errorf("no table: %w", err)
	}
	for i, h := range lines[0] {
		if h == column {
			return strconv.ParseFloat(lines[len(lines)-1][i], 64)
		}
	}
	return 0, fmt.Errorf("no column %s", column)
}

// inProcess is the metric of a benchmark of package usiw, within one process.
func (t *tools) inProcess(name, unit, benchmark string) *subject {
	return t.benchmark(t.usiwtest, benchmark, 0).metric(name+", in one process", unit, unit)
}

// sample is a run that prints several figures in the format of a benchmark: NAME, a count, and
// pairs of a value and its unit. Each round has one run for all of them.
type sample struct {
	name string // as it appears in the output
	run  func() (out string, used time.Duration, err error)

	out  string // of the last run
	used time.Duration
	read map[string]bool // units that were read since that run
}

// metric is the figure with the unit column.
func (s *sample) metric(name, unit, column string) *subject {
	return &subject{name: name, unit: unit, less: unit != unitRate && unit != unitOps,
		run: func() (figure, time.Duration, error) {
			if s.out == "" || s.read[column] {
				var err error
				if s.out, s.used, err = s.run(); err != nil {
					s.out = ""
					return 0, 0, err
				}
				s.read = make(map[string]bool)
			}
			s.read[column] = true
			f, err := benchFigure(s.out, s.name, column)
			used := s.used
			s.used = 0
			return f, used, err
		}}
}

// benchmark runs a benchmark of a test binary, within one process. procs is GOMAXPROCS, 0 means all
// processors.
func (t *tools) benchmark(binary, name string, procs int) *sample {
	return &sample{name: name, run: func() (string, time.Duration, error) {
		pattern := "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
		cmd := exec.Command(binary, "-test.run=^$", "-test.bench="+pattern, "-test.benchtime="+t.seconds.String())
		if procs > 0 {
			cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}}
}

// reads is a job of Reads from a process whose program is doing other work.
func (t *tools) reads(program string, pause time.Duration) *sample {
	p := t.ends(job{work: workReads, program: program, pause: pause, size: 64, depth: 1, crc: true})
	return &sample{name: readsName, run: p.run}
}

// benchFigure extracts the value with the unit from the line of a benchmark.
func benchFigure(out, benchmark, unit string) (figure, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != benchmark && !strings.HasPrefix(f[0], benchmark+"-") {
			continue
		}
		for i := 3; i < len(f); i += 2 {
			if f[i] == unit {
				return strconv.ParseFloat(f[i-1], 64)
			}
		}
	}
	return 0, fmt.Errorf("no figure in %s of %s: %s", unit, benchmark, out)
}

// byteSize formats a size with its unit.
func byteSize(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d B", n)
}
