// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// processors returns the number of processors.
func processors() int { return runtime.NumCPU() }

// host describes the machine in one line. The clock source matters: reading hpet takes a system
// call, reading tsc does not.
func host() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(v)
			break
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	clock, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return fmt.Sprintf("%d processors %s, Linux %s, clock %s, %s", processors(), model,
		strings.TrimSpace(string(release)), strings.TrimSpace(string(clock)), runtime.Version())
}

// busyTime returns the total time that processors have been busy since the host started, or 0 if it
// cannot be read.
func busyTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return busyIn(string(text))
}

// busyIn extracts it from the text of /proc/stat: the first line without idle, iowait, and guest
// time, which user and nice already include. The unit is a hundredth of a second (USER_HZ, the same
// on every architecture that Go supports).
func busyIn(text string) time.Duration {
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq,
		&steal); err != nil {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * 10 * time.Millisecond
}

// count is a row about something that tests count.
type count struct{ id, what, goal, verdict string }

// counted runs the tests that count allocations, system calls and messages, and returns their
// outcomes.
func (t *tools) counted() []count {
	return []count{
		{"A13", "allocations of posting, polling and receiving; write calls of a list", "0; 1",
			counts(t.usiwtest, "TestWriteCalls", "TestVerbs/Defaults/Alloc")},
		{"C1", "allocations of posting and polling, ib: over fakeverbs", "0", counts(t.ibtest, "TestPostAllocNothing")},
		{"C8", "messages that the confirmation of a list takes, and answers to them", "1; 1",
			counts(t.ibtest, "TestConfirmationMessages")},
	}
}

// counts runs tests of a binary.
func counts(binary string, tests ...string) string {
	out, err := exec.Command(binary, "-test.run="+strings.Join(tests, "|"), "-test.v").CombinedOutput()
	if err != nil {
		return "missed"
	}
	for _, test := range tests {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			return "not run"
		}
	}
	return "reached"
}
