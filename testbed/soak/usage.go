// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// amount is the resources that the process uses.
type amount struct {
	resident   int // bytes of memory
	files      int // descriptors
	goroutines int
}

func (a amount) String() string {
	return fmt.Sprintf("%d KiB, %d files, %d goroutines", a.resident>>10, a.files, a.goroutines)
}

func measure() amount {
	a := amount{goroutines: runtime.NumGoroutine()}
	files, _ := os.ReadDir("/proc/self/fd")
	a.files = len(files)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			a.resident = kib << 10
		}
	}
	return a
}

// usage holds samples taken during the run, at equal intervals.
type usage struct{ samples []amount }

func (u *usage) add(a amount) { u.samples = append(u.samples, a) }

const (
	memorySlack  = 32 << 20
	fileSlack    = 32
	leastSamples = 10 // required for a verdict
)

// judge compares the second half of the run with the first, without its beginning: an amount that
// only grows is a leak. It compares the minimum of each half, because connections are opened and
// closed throughout.
func (u *usage) judge() error {
	if len(u.samples) < leastSamples {
		return fmt.Errorf("only %d samples of what the process uses", len(u.samples))
	}
	n := len(u.samples)
	first, last := least(u.samples[n/5:n/2]), least(u.samples[n*7/10:])
	fmt.Printf("soak: least use in the first half %v, at the end %v\n", first, last)
	if last.resident > first.resident+first.resident/4+memorySlack || last.files > first.files+fileSlack ||
		last.goroutines > 2*first.goroutines+fileSlack {
		return fmt.Errorf("the process grows: %v, later %v", first, last)
	}
	return nil
}

func least(all []amount) amount {
	a := all[0]
	for _, b := range all[1:] {
		a.resident, a.files, a.goroutines = min(a.resident, b.resident), min(a.files, b.files),
			min(a.goroutines, b.goroutines)
	}
	return a
}

// settled measures after everything was closed. It waits until no more is in use than before.
func settled(before amount) amount {
	deadline := time.Now().Add(settling)
	for {
		debug.FreeOSMemory()
		a := measure()
		if a.judgeEnd(before) == nil || time.Now().After(deadline) {
			return a
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// runtimeFiles is the number of descriptors that the Go runtime and the rdma-core libraries open
// once and keep open.
const runtimeFiles = 10

// judgeEnd compares the usage after everything was closed with the usage at the start.
func (a amount) judgeEnd(before amount) error {
	switch {
	case a.goroutines > before.goroutines:
		return fmt.Errorf("%d goroutines are left:\n%s", a.goroutines-before.goroutines, stacks())
	case a.files > before.files+runtimeFiles:
		return fmt.Errorf("%d files are left open", a.files-before.files)
	case a.resident > before.resident+2*memorySlack:
		return fmt.Errorf("%d KiB of memory are left, %d KiB at first", a.resident>>10, before.resident>>10)
	}
	return nil
}
