// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// kernel has the kernel's log from before the run.
type kernel struct{ log []string }

// lookAtKernel remembers the kernel's log.
func lookAtKernel() (*kernel, error) {
	log, err := kernelLog()
	return &kernel{log}, err
}

func kernelLog() ([]string, error) {
	out, err := exec.Command("dmesg").Output()
	if err != nil {
		return nil, fmt.Errorf("dmesg: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// trouble matches the lines that the kernel's log must not have.
var trouble = regexp.MustCompile(`(?i)warning|\bbug\b|call trace|oops|panic|corrupt|leak|use.after.free|refcount|` +
	`out of memory|oom-kill|page allocation failure|hung task|blocked for more than|stall|lockup|segfault|general protection`)

// harmless matches lines with such words that are not about this program.
var harmless = []*regexp.Regexp{
	// Emulated processors are slow, and the clock of this machine may stand still for a while.
	regexp.MustCompile(`clocksource: `),
	regexp.MustCompile(`sched: RT throttling activated`),
}

// judge requires that the kernel holds no object of the soak any more, and that its log has no new line of trouble.
func (k *kernel) judge() error {
	var errs []error
	left, err := resources()
	for deadline := time.Now().Add(settling); err == nil && len(left) > 0 && time.Now().Before(deadline); left, err = resources() {
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil {
		errs = append(errs, err)
	}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("rdma resource shows what processes left:\n%s", strings.Join(left, "\n")))
	}
	log, err := kernelLog()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, line := range complaints(k.log, log) {
		errs = append(errs, fmt.Errorf("the kernel says: %s", line))
	}
	return errors.Join(errs...)
}

// complaints are the lines of trouble that are new.
func complaints(before, after []string) []string {
	var found []string
	for _, line := range after {
		if trouble.MatchString(line) && !slices.Contains(before, line) &&
			!slices.ContainsFunc(harmless, func(r *regexp.Regexp) bool { return r.MatchString(line) }) {
			found = append(found, line)
		}
	}
	return found
}

// resources lists the objects of processes in the kernel's RDMA subsystem. The kernel's own have no process id.
func resources() ([]string, error) {
	if _, err := exec.LookPath("rdma"); err != nil {
		return nil, fmt.Errorf("the command that looks for what is left: %w", err)
	}
	var left []string
	for _, kind := range []string{"cm_id", "qp", "srq", "cq", "mr", "ctx", "pd"} {
		out, err := exec.Command("rdma", "resource", "show", kind).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("rdma resource show %s: %w: %s", kind, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, " pid ") {
				left = append(left, kind+": "+strings.TrimSpace(line))
			}
		}
	}
	return left, nil
}
