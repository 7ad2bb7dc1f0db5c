// SPDX-License-Identifier: BSD-3-Clause

package main

// programs adds programs on the RNIC and returns their rows. polling and fabric are 64-byte round
// trips with the Go API and with libfabric; write is a stream of 64 KiB Writes with the Go API.
func (p *plan) programs(t *tools, polling, fabric, write *subject) (rows []*row) {
	add := func(s *subject) *subject {
		p.subjects = append(p.subjects, s)
		return s
	}
	send := add(t.perftest("ib_send_lat by goverbs run, 64 B, polling", unitTime, perftestMean, 64, 20000,
		"ib_send_lat"))
	spins := add(t.perftest("ib_write_lat by goverbs run, 64 B", unitTime, perftestMean, 64, 20000, "ib_write_lat"))
	waits := add(t.perftest("ib_send_lat -e by goverbs run, 64 B", unitTime, perftestMean, 64, 10000, "ib_send_lat",
		"-e"))
	qperf := add(qperfTCP(64))
	stream := add(t.perftest("ib_write_bw by goverbs run, 64 KiB", unitRate, perftestRate, 64<<10, 20000,
		"ib_write_bw"))
	add(write)
	return []*row{
		{id: "E1", what: "time of 64 B one way, polling: ib_send_lat / Write with immediate", over: send,
			under: polling, less: true, goal: 1.2, hope: 1},
		{id: "E1", what: "the same / libfabric", over: send, under: fabric, less: true, goal: 1.2, hope: 1},
		{id: "E2", what: "64 KiB: ib_write_bw / Write, polling", over: stream, under: write, goal: 0.9, hope: 1},
		{id: "E3", what: "time of 64 B one way: ib_send_lat -e / qperf tcp_lat", over: waits, under: qperf, less: true,
			goal: 1.3, hope: 1.15}, {id: "E4",
			what: "time of 64 B one way: ib_write_lat, which spins on memory / ib_send_lat, which polls", over: spins,
			under: send, less: true, goal: 1.5, hope: 1.2},
	}
}
