// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Programs of Debian that "goverbs run" puts on the RNIC, and one that uses TCP.

// errClock: perftest counts the cycles of the processor. Afterwards it compares them with another
// clock, which fails if other programs take the processor from it meanwhile.
var errClock = errors.New("perftest could not tell how long a cycle takes")

// perftestTries is how often a program of perftest is run, until it has told the time and has not
// lost its race: its server listens on a port twice, and a client that comes in between is refused.
const perftestTries = 4

// perftest is a program of perftest on the RNIC. Its result is in a column of the last table,
// counted from 0.
func (t *tools) perftest(name, unit string, column, size, count int, args ...string) *subject {
	line := []string{t.goverbs, "run", "--", args[0], "-F", "-R", "-p", "{port}", "-s", strconv.Itoa(size), "-n",
		strconv.Itoa(count)}
	line = append(line, args[1:]...)
	p := pair{listen: line, connect: append(line[:len(line):len(line)], "127.0.0.1")}
	once := p.figure(func(out string) (figure, error) {
		f, err := perftestFigure(out, size, column)
		if unit == unitRate {
			f *= 1 << 20 / 1e6
		}
		return f, err
	})
	return &subject{name: name, unit: unit, less: unit == unitTime,
		run: func() (figure, time.Duration, error) { return perftestAgain(once) }}
}

// perftestRace is what a client of perftest says that has lost the race.
var perftestRace = regexp.MustCompile(`RDMA_CM_EVENT_REJECTED|Connection refused`)

// perftestAgain runs perftest once, and again after what is known of it.
func perftestAgain(once func() (figure, time.Duration, error)) (f figure, used time.Duration, err error) {
	for range perftestTries {
		if f, used, err = once(); err == nil || !errors.Is(err, errClock) && !perftestRace.MatchString(err.Error()) {
			break
		}
	}
	return f, used, err
}

// Columns of perftest's tables.
const (
	perftestMean = 5 // of a test of latency: us one way
	perftestRate = 3 // of a test of bandwidth: 2^20 bytes per second, mean
)

// perftestFigure finds a column in the row of a size, such as
//
//	#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec]
//	64     20000       6.37        179.97      6.90            7.12        0.5           9.27
func perftestFigure(out string, size, column int) (figure, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) <= column || f[0] != strconv.Itoa(size) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimPrefix(f[column], "-"), 64) // C writes -nan
		if err == nil && (v <= 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
			err = errClock
		}
		return v, err
	}
	return 0, fmt.Errorf("no row of %d bytes", size)
}

// qperfTCP is the latency of TCP by qperf, whose sides sleep until data come.
func qperfTCP(size int) *subject {
	line := []string{"qperf", "-lp", "{port}"}
	p := pair{listen: line, connect: append(line[:len(line):len(line)], "-t", "1", "-m", strconv.Itoa(size),
		"127.0.0.1", "tcp_lat")}
	return &subject{name: fmt.Sprintf("qperf tcp_lat, %s", byteSize(size)), unit: unitTime, less: true,
		run: p.figure(qperfFigure)}
}

var qperfLatency = regexp.MustCompile(`latency += +([0-9.]+) (ns|us|ms|sec)\b`)

// qperfFigure finds the microseconds in a line such as "latency  =  7.12 us".
func qperfFigure(out string) (figure, error) {
	m := qperfLatency.FindStringSubmatch(out)
	if m == nil {
		return 0, errors.New("no latency")
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return v * map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6}[m[2]], err
}
