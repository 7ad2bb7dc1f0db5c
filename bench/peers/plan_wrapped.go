// SPDX-License-Identifier: BSD-3-Clause

package main

// wrapped adds the comparisons of compat/ibcompat devices with the devices they wrap, and returns
// the rows. Both subjects of a row are measured alternately in one process:
// compat/ibcompat/cost_bench_test.go.
func (p *plan) wrapped(t *tools) (rows []*row) {
	add := func(r *row, s *sample, what, unit, prefix, suffix string) {
		r.under = s.metric(what+", the device below", unit, prefix+"bare-"+suffix)
		r.over = s.metric(what+", ib:", unit, prefix+"ib-"+suffix)
		p.subjects = append(p.subjects, r.under, r.over)
		r.less = true
		rows = append(rows, r)
	}
	pass := t.benchmark(t.ibtest, "BenchmarkCostPassThrough", 0)
	add(&row{id: "C1", what: "fakeverbs, post of one request: ib: - bare, ns", extra: true, goal: 15, hope: 10}, pass,
		"fakeverbs, post of one request", unitCall, "post-", "ns")
	add(&row{id: "C1", what: "fakeverbs, poll of one completion: ib: - bare, ns", extra: true, goal: 15, hope: 10},
		pass, "fakeverbs, poll of one completion", unitCall, "poll-", "ns")
	add(&row{id: "C1", what: "fakeverbs, lists of 16, post and poll: ib: / bare", goal: 1.15, hope: 1.05}, pass,
		"fakeverbs, post and poll of 16", unitCall, "list-", "ns")
	for _, c := range []struct {
		id, bench, what string
		goal, hope      float64
	}{
		{"C3", "OneSided/read", "Read of 64 B", 1.05, 1},
		{"C3", "OneSided/fetchadd", "fetch-and-add", 1.05, 1},
		{"C3", "OneSided/write-relaxed", "Write of 64 B, SendRelaxed", 1.05, 1},
		{"C3", "OneSided/stream", "Write of 1 MiB, 4 in progress", 1.05, 1},
		{"C3", "OneSided/write", "Write of 64 B, confirmed", 0, 0},
		{"C4", "Send/64", "Send there and back, 64 B", 1.15, 1},
		{"C4", "Send/1MiB", "Send there and back, 1 MiB", 1.05, 1},
	} {
		add(&row{id: c.id, what: "usiw0, " + c.what + ": ib: / bare", goal: c.goal, hope: c.hope},
			t.benchmark(t.ibtest, "BenchmarkCost"+c.bench, 0), "usiw0, "+c.what, unitOne, "", "us")
	}
	for _, c := range []struct {
		id, bench, what, device, instead string
		goal, hope                       float64
	}{
		{"C5", "Plain/fetchadd", "fetch-and-add", "usiw0-plain", "Send there and back", 1.5, 1.15},
		{"C6", "Plain/write-imm", "Write with immediate there and back", "usiw0-plain", "Write and Send", 1.1, 1},
		{"C7", "Masked/wrong", "masked fetch-and-add by CmpSwaps, wrong guess", "RoCE", "fetch-and-add", 2.2, 2},
		{"C7", "Masked/right", "masked fetch-and-add by CmpSwaps, right guess", "RoCE", "fetch-and-add", 1.2, 1},
	} {
		add(&row{id: c.id, what: c.device + ", " + c.what + ": ib: / bare, " + c.instead, goal: c.goal, hope: c.hope},
			t.benchmark(t.ibtest, "BenchmarkCost"+c.bench, 0), c.device+", "+c.what+" / "+c.instead, unitOne, "", "us")
	}
	return rows
}
