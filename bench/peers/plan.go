// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"time"
)

// plan says what is measured, and which ratios are computed from it.
type plan struct {
	subjects []*subject // in the order of a round
	rows     []*row
	counted  []count
}

// row is a ratio of two subjects and its targets.
type row struct {
	id, what   string
	over       *subject // dividend
	under      *subject // divisor
	less       bool     // the ratio should be at most the target, not at least
	extra      bool     // it is a difference, not a ratio
	goal, hope float64  // target and stretch target; 0 = the ratio is only reported
}

// makePlan orders the subjects so that those that are compared are measured shortly after each
// other.
func makePlan(t *tools) *plan {
	p := &plan{}
	add := func(s *subject) *subject {
		p.subjects = append(p.subjects, s)
		return s
	}
	tcp := func(name string, j job) *subject {
		j.over, j.depth = "tcp", 1
		return add(t.of("Go TCP, "+name, j))
	}
	write := func(name string, j job) *subject {
		j.work, j.size, j.depth = "stream", 1<<20, 4
		return add(t.of("RDMA Write of 1 MiB, "+name, j))
	}
	turn := func(name string, j job) *subject {
		j.work, j.depth = "pingpong", 1
		return add(t.of("Write with immediate there and back, "+name, j))
	}
	adds := func(name string, j job) *subject {
		j.work, j.size, j.crc = "fetchadd", 8, true
		return add(t.of("fetch-and-add, "+name, j))
	}

	rsock := func(name string, j job) *subject {
		j.over, j.depth = "rsocket", 1
		return add(t.of("rsocket, "+name, j))
	}

	rsockOff := rsock("stream of 1 MiB, CRC off", job{work: "stream", size: 1 << 20})
	rsockOn := rsock("stream of 1 MiB, CRC on", job{work: "stream", size: 1 << 20, crc: true})
	raw := tcp("stream of 1 MiB", job{work: "stream", conns: 1, size: 1 << 20})
	off := write("CRC off", job{conns: 1})
	on := write("CRC on", job{conns: 1, crc: true})
	small := write("CRC on, FPDUs of 1.4 KiB", job{conns: 1, crc: true, mtu: 1460})
	raw4 := tcp("4 streams of 1 MiB", job{work: "stream", conns: 4, size: 1 << 20})
	off4 := write("4 connections, CRC off", job{conns: 4})
	on4 := write("4 connections, CRC on", job{conns: 4, crc: true})
	amBW := add(ucx("ucp_am_bw of 1 MiB", unitRate, "overall_bw", 1500, "-t", "ucp_am_bw", "-s", "1048576"))
	spinOff := write("CRC off, polling", job{conns: 1, mode: modePoll})
	spinOn := write("CRC on, polling", job{conns: 1, mode: modePoll, crc: true})
	fi1M := add(fabric(1<<20, 1000))
	turn1MOff := turn("1 MiB, CRC off, polling", job{size: 1 << 20, mode: modePoll})
	turn1MOn := turn("1 MiB, CRC on, polling", job{size: 1 << 20, mode: modePoll, crc: true})
	c64 := add(t.cPingPong(64, 50000))
	turn64 := turn("64 B, CRC on, polling", job{size: 64, mode: modePoll, crc: true})
	fi64 := add(fabric(64, 30000))
	amLat := add(ucx("ucp_am_lat of 64 B", unitTime, "overall_lat", 30000, "-t", "ucp_am_lat", "-s", "64"))
	putLat := add(ucx("ucp_put_lat of 64 B", unitTime, "overall_lat", 20000, "-t", "ucp_put_lat", "-s", "64"))
	write64K := t.of("RDMA Write of 64 KiB, CRC on, polling",
		job{work: "stream", size: 64 << 10, depth: 64, conns: 1, mode: modePoll, crc: true})
	programs := p.programs(t, turn64, fi64, write64K)
	tcp("64 B there and back, polling", job{work: "pingpong", conns: 1, size: 64, mode: modePoll})
	tcp64 := tcp("64 B there and back", job{work: "pingpong", conns: 1, size: 64})
	turn64On := turn("64 B, CRC on", job{size: 64, crc: true})
	rsock64On := rsock("64 B there and back, CRC on", job{work: "pingpong", size: 64, crc: true})
	turn64Off := turn("64 B, CRC off", job{size: 64})
	rsock64Off := rsock("64 B there and back, CRC off", job{work: "pingpong", size: 64})
	tcpIn := add(t.inProcess("Go TCP, 64 B there and back", unitTime, "BenchmarkTCPPingPong"))
	turnIn := add(t.inProcess("Write with immediate there and back, 64 B, CRC on", unitTime, "BenchmarkPingPong/go"))
	ucxAdd1 := add(ucx("ucp_fadd, 1 in progress", unitOps, "overall_mr", 30000, "-t", "ucp_fadd", "-s", "8", "-O", "1"))
	add1Spin := adds("1 in progress, polling", job{depth: 1, mode: modePoll})
	add1 := adds("1 in progress", job{depth: 1})
	ucxAdd16 := add(ucx("ucp_fadd, 16 in progress", unitOps, "overall_mr", 50000, "-t", "ucp_fadd", "-s", "8", "-O",
		"16"))
	add16Spin := adds("16 in progress, polling", job{depth: 16, mode: modePoll})
	add16 := adds("16 in progress", job{depth: 16})
	add1In := add(t.inProcess("fetch-and-add, 1 in progress", unitOps, "BenchmarkFetchAdd/depth=1"))
	add16In := add(t.inProcess("fetch-and-add, 16 in progress", unitOps, "BenchmarkFetchAdd/depth=16"))
	add64In := add(t.inProcess("fetch-and-add, 64 in progress", unitOps, "BenchmarkFetchAdd/depth=64"))

	// Crowds and floods within one process: usiw/bench_crowd_linux_test.go and the files beside it.
	var many []*row
	crowd := func(how string, conns, active, procs int) (p50, p99, each *subject) {
		name := fmt.Sprintf("64 B there and back on %d of %d connections, %s, %d processors", active, conns, how, procs)
		bench := fmt.Sprintf("BenchmarkCrowd/%s/conns=%d/active=%d", how, conns, active)
		if how == "TCP" {
			bench = fmt.Sprintf("BenchmarkTCPCrowd/conns=%d/active=%d", conns, active)
		}
		b := t.benchmark(t.usiwtest, bench, procs)
		return b.metric(name+", p50", unitBack, "p50-us"), b.metric(name+", p99", unitBack, "p99-us"),
			b.metric(name+", p50 for each", unitBack, "p50/n-us")
	}
	for _, procs := range []int{1, 2} {
		_, _, four := crowd("poll", 4, 4, procs)
		add(four)
		for _, n := range []int{5, 100, 1000} {
			_, _, each := crowd("poll", n, n, procs)
			many = append(many, &row{id: "B1",
				what: fmt.Sprintf("polling %d connections / 4, for each, %d processors", n, procs), over: add(each),
				under: four, less: true, goal: 1.5, hope: 1.25})
		}
		_, _, four = crowd("TCP", 4, 4, procs)
		_, _, each := crowd("TCP", 1000, 1000, procs)
		many = append(many, &row{id: "B1",
			what: fmt.Sprintf("Go TCP, 1000 connections / 4, for each, %d processors", procs), under: add(four),
			over: add(each), less: true})
		alone, _, _ := crowd("poll", 1, 1, procs)
		idle, _, _ := crowd("poll", 1000, 1, procs)
		many = append(many, &row{id: "B1",
			what: fmt.Sprintf("polling, 1 active of 1000 / 1 alone, %d processors", procs), under: add(alone),
			over: add(idle), less: true, goal: 2, hope: 1.5})
	}
	// Reads from another process, whose program keeps doing other work. A program that never waits
	// answers the same messages as one that waits.
	type times struct {
		name     string
		p50, p99 *subject
	}
	reads := func(name, program string, pause time.Duration) times {
		r := t.reads(program, pause)
		what := "Read from a program that " + name
		return times{name, add(r.metric(what+", p50", unitBack, "p50-us")),
			add(r.metric(what+", p99", unitBack, "p99-us"))}
	}
	compare := func(r, base times) {
		many = append(many,
			&row{id: "B2", what: "Read from a program that " + r.name + " / that " + base.name + ", p50", over: r.p50,
				under: base.p50, less: true, goal: 1.5, hope: 1.25},
			&row{id: "B2", what: "the same, p99", over: r.p99, under: base.p99, less: true, goal: 1.5, hope: 1.25})
	}
	pauses := map[string]time.Duration{"": 500 * time.Microsecond, " briefly": 200 * time.Microsecond}
	for _, how := range []string{"", " briefly"} {
		base := reads("answers"+how+" and computes", programAnswers, pauses[how])
		compare(reads("waits"+how+" and computes", programWaits, pauses[how]), base)
	}
	never := reads("only computes", programComputes, pauses[""])
	for _, how := range []string{"", " briefly"} {
		compare(reads("polls"+how+" and computes", programPolls, pauses[how]), never)
	}
	floodTCP := t.benchmark(t.usiwtest, "BenchmarkTCPFlood", 0)
	meanTCP, rateTCP := add(floodTCP.metric("Go TCP, 64 B there and back beside 4 streams, mean", unitBack, "mean-us")),
		add(floodTCP.metric("Go TCP, 4 streams beside it", unitRate, "MB/s"))
	for _, crc := range []string{"off", "on"} {
		b := t.benchmark(t.usiwtest, "BenchmarkFlood/CRC="+crc, 0)
		mean := &row{id: "B3", what: "64 B there and back beside 4 streams, CRC " + crc + " / Go TCP, mean",
			over:  add(b.metric("64 B there and back beside 4 streams, CRC "+crc+", mean", unitBack, "mean-us")),
			under: meanTCP, less: true, goal: 1.5, hope: 1}
		rate := &row{id: "B3", what: "the 4 streams beside it, CRC " + crc + " / Go TCP",
			over: add(b.metric("4 streams beside it, CRC "+crc, unitRate, "MB/s")), under: rateTCP}
		if crc == "off" {
			rate.goal, rate.hope = 0.9, 1
		}
		many = append(many, mean, rate)
	}
	for _, n := range []int{1, 2, 8, 100, 1000} {
		tcp50, tcp99, _ := crowd("TCP", n, n, 2)
		add(tcp50)
		add(tcp99)
		for _, how := range []string{"wait", "channel", "spin"} {
			p50, p99, _ := crowd(how, n, n, 2)
			many = append(many,
				&row{id: "B4", what: fmt.Sprintf("%d connections of one CQ, %s / Go TCP, p50", n, how), over: add(p50),
					under: tcp50, less: true, goal: 1.25, hope: 1},
				&row{id: "B4", what: "the same, p99", over: add(p99), under: tcp99, less: true, goal: 1.5, hope: 1})
		}
	}

	p.rows = []*row{
		{id: "A1", what: "Write, CRC off / Go TCP", over: off, under: raw, goal: 0.85, hope: 0.95},
		{id: "A2", what: "Write, CRC on / Go TCP", over: on, under: raw, goal: 0.75, hope: 0.85},
		{id: "A3", what: "Write, FPDUs of 1.4 KiB, CRC on / Go TCP", over: small, under: raw, goal: 0.55, hope: 0.65},
		{id: "A4", what: "Write, 4 connections, CRC off / Go TCP", over: off4, under: raw4, goal: 0.60, hope: 0.75},
		{id: "A4", what: "the same, CRC on", over: on4, under: raw4},
		{id: "A5", what: "Write, polling, CRC off / UCX am_bw", over: spinOff, under: amBW, goal: 0.85, hope: 1.0},
		{id: "A5", what: "the same, CRC on", over: spinOn, under: amBW},
		{id: "A6", what: "time of 1 MiB one way: libfabric / Write, polling, CRC off", over: fi1M, under: turn1MOff,
			goal: 1.4, hope: 2.0}, {id: "A6", what: "the same, CRC on", over: fi1M, under: turn1MOn, goal: 1.1,
			hope: 1.4},
		{id: "A7", what: "time of 64 B one way: Write, polling, CRC on / C TCP", over: turn64, under: c64, less: true,
			goal: 1.25, hope: 1.10},
		{id: "A8", what: "the same / libfabric", over: turn64, under: fi64, less: true, goal: 1.0, hope: 0.85},
		{id: "A8", what: "the same / UCX am_lat", over: turn64, under: amLat, less: true, goal: 1.0, hope: 0.9},
		{id: "A8", what: "the same / UCX put_lat", over: turn64, under: putLat, less: true, goal: 0.6, hope: 0.35},
		{id: "A9", what: "time of 64 B one way in one process: Write, CRC on / Go TCP", over: turnIn, under: tcpIn,
			less: true, goal: 1.40, hope: 1.05},
		{id: "A10", what: "fetch-and-add, polling / UCX fadd", over: add1Spin, under: ucxAdd1, goal: 0.9, hope: 1.0},
		{id: "A10", what: "the same, not polling", over: add1, under: ucxAdd1},
		{id: "A11", what: "fetch-and-add, 16 in progress, polling / UCX fadd", over: add16Spin, under: ucxAdd16,
			goal: 4, hope: 8}, {id: "A11", what: "the same, not polling", over: add16, under: ucxAdd16, goal: 2,
			hope: 4},
		{id: "A12", what: "fetch-and-add in one process, 16 in progress / 1", over: add16In, under: add1In, goal: 8,
			hope: 14},
		{id: "A12", what: "the same, 64 in progress / 1", over: add64In, under: add1In, goal: 20, hope: 40},
	}
	p.rows = append(p.rows, many...)
	p.rows = append(p.rows, p.wrapped(t)...)
	p.rows = append(p.rows,
		&row{id: "D1", what: "rsocket, stream of 1 MiB, CRC off / Go TCP", over: rsockOff, under: raw, goal: 0.9,
			hope: 1},
		&row{id: "D1", what: "the same, CRC on", over: rsockOn, under: raw, goal: 0.75, hope: 0.85},
		&row{id: "D2", what: "64 B there and back, CRC off: rsocket / Write with immediate", over: rsock64Off,
			under: turn64Off, less: true, goal: 1.2, hope: 1.05},
		&row{id: "D2", what: "the same, CRC on", over: rsock64On, under: turn64On, less: true, goal: 1.2, hope: 1.05},
		&row{id: "D2", what: "the same / Go TCP", over: rsock64On, under: tcp64, less: true})
	for i, n := range []int{1, 100, 1000} {
		// The target for many streams is the target for one, minus 0.1.
		name, goal, hope := fmt.Sprintf("%d streams of 64 KiB", n), [...]float64{0, 0.8, 0.8}[i],
			[...]float64{0, 0.9, 0.9}[i]
		p.rows = append(p.rows, &row{id: "D3", what: "rsocket, " + name + ", CRC off / Go TCP", goal: goal, hope: hope,
			over:  rsock(name+", CRC off", job{work: "stream", conns: n, size: 64 << 10}),
			under: tcp(name, job{work: "stream", conns: n, size: 64 << 10})})
	}
	p.rows = append(p.rows, programs...)
	return p
}
