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

// Debian programs that "goverbs run" runs on the RNIC, and one that uses TCP.

// errClock: perftest measures in processor cycles. Afterwards it calibrates them against another
// clock, which fails if other programs preempt it.
var errClock = errors.New("perftest could not tell how long a cycle takes")

// perftestTries is how often a perftest program is run until its calibration succeeds and it does
// not lose its race: its server listens on a port twice, and a client that connects in between is
// refused.
const perftestTries = 4

// perftest is a perftest program on the RNIC. Its result is in a column of the last table, counted
// from 0.
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

// perftestRace matches the error of a perftest client that lost the race.
var perftestRace = regexp.MustCompile(`RDMA_CM_EVENT_REJECTED|Connection refused`)

// perftestAgain runs perftest, and retries after these known failures.
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
	perftestMean = 5 // of a latency test: us one way
	perftestRate = 3 // of a bandwidth test: 2^20 bytes per second, mean
)

// perftestFigure extracts a column from the row of a size, such as
//
//	#bytes #iterations t_min t_max    t_typical t_avg t_stdev 99% percentile   (all in usec)
//	64     20000       6.37  179.97   6.90      7.12  0.5     9.27
func perftestFigure(out string, size, column int) (figure, error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) <= column || f[0] != strconv.Itoa(size) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimPrefix(f[column], "-"), 64) // C prints -nan
		if err == nil && (v <= 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
			err = errClock
		}
		return v, err
	}
	return 0, fmt.Errorf("no row of %d bytes", size)
}

// qperfTCP is qperf's TCP latency test, whose sides sleep until data arrives.
func qperfTCP(size int) *subject {
	line := []string{"qperf", "-lp", "{port}"}
	p := pair{listen: line, connect: append(line[:len(line):len(line)], "-t", "1", "-m", strconv.Itoa(size),
		"127.0.0.1", "tcp_lat")}
	return &subject{name: fmt.Sprintf("qperf tcp_lat, %s", byteSize(size)), unit: unitTime, less: true,
		run: p.figure(qperfFigure)}
}

var qperfLatency = regexp.MustCompile(`latency += +([0-9.]+) (ns|us|ms|sec)\b`)

// qperfFigure extracts the microseconds from a line such as "latency = 7.12 us".
func qperfFigure(out string) (figure, error) {
	m := qperfLatency.FindStringSubmatch(out)
	if m == nil {
		return 0, errors.New("no latency")
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return v * map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6}[m[2]], err
}
