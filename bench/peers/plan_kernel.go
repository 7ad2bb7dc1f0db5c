// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// kernelDevice is a kernel device and one of its addresses.
type kernelDevice struct{ name, host string }

// kernelDevices parses a list such as rxe0@10.78.0.1,siw0@10.77.0.1.
func kernelDevices(list string) (devices []kernelDevice, err error) {
	for word := range strings.SplitSeq(list, ",") {
		name, host, _ := strings.Cut(word, "@")
		if addr, err := netip.ParseAddr(host); name == "" || err != nil || !addr.Is4() {
			return nil, fmt.Errorf("-kernel: %q: want DEVICE@ADDRESS, with an address of IPv4", word)
		}
		devices = append(devices, kernelDevice{name, host})
	}
	return devices, nil
}

// kernelPlan compares package rsocket with rstream, a C program, on the same device. Both take
// turns with the same messages, and sleep while they wait (rstream -T b). rstream without options,
// which polls, is included for comparison.
func kernelPlan(t *tools, devices []kernelDevice) *plan {
	p := &plan{}
	for _, d := range devices {
		for _, c := range []struct {
			what               string
			size, count, turns int
			goal, hope         float64
		}{
			{"64 B there and back", 64, 1, 500, 1.2, 1},
			{"stream of 64 KiB", 64 << 10, 100, 2, 0.9, 1},
			{"stream of 1 MiB", 1 << 20, 10, 2, 0.9, 1},
		} {
			j := job{over: "rsocket", work: workTurns, device: d.name, host: d.host, size: c.size, count: c.count,
				turns: c.turns, depth: 1}
			name := d.name + ", " + c.what
			polls := rstream(name+", rstream polling", j, "n")
			sleeps := rstream(name+", rstream", j, "b")
			ours := t.of(name+", rsocket", j)
			p.subjects = append(p.subjects, polls, sleeps, ours)
			p.rows = append(p.rows,
				&row{id: "D4", what: name + ": rsocket / rstream", over: ours, under: sleeps, less: ours.less,
					goal: c.goal, hope: c.hope},
				&row{id: "D4", what: "the same / rstream polling", over: ours, under: polls, less: ours.less})
		}
	}
	return p
}
