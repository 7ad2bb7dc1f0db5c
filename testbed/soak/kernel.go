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

// Warnings of drivers that are known. The kernel puts a warning between two lines; it is known if a line between them matches.
var (
	cutHere  = regexp.MustCompile(`-+\[ cut here \]-+`)
	endTrace = regexp.MustCompile(`---\[ end trace `)
	known    = []*regexp.Regexp{
		// Of rxe of 6.1, seen once when processes were killed: a tasklet of a QP was to run that was not scheduled any more. The
		// kernel does not run it (kernel/softirq.c, tasklet_clear_sched).
		regexp.MustCompile(`tasklet SCHED state not set: .*\brxe_do_task\b`),
	}
)

// withoutKnown leaves known warnings out.
func withoutKnown(log []string) []string {
	var left []string
	for len(log) > 0 {
		n := 1
		if cutHere.MatchString(log[0]) {
			if end := slices.IndexFunc(log, endTrace.MatchString); end >= 0 {
				n = end + 1
			}
			if slices.ContainsFunc(log[:n], func(line string) bool {
				return slices.ContainsFunc(known, func(r *regexp.Regexp) bool { return r.MatchString(line) })
			}) {
				log = log[n:]
				continue
			}
		}
		left, log = append(left, log[:n]...), log[n:]
	}
	return left
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
	for _, line := range withoutKnown(after) {
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
