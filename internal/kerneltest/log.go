// SPDX-License-Identifier: BSD-3-Clause

package kerneltest

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func readLog() ([]string, error) {
	out, err := exec.Command("dmesg").Output()
	if err != nil {
		return nil, fmt.Errorf("dmesg: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// trouble matches the lines that the kernel's log must not have, whatever programs and peers do.
var trouble = regexp.MustCompile(`(?i)warning|\bbug\b|call trace|oops|panic|corrupt|leak|use.after.free|refcount|` +
	`out of memory|oom-kill|page allocation failure|hung task|blocked for more than|stall|lockup|segfault|general protection`)

// harmless matches lines with such words that are not about RDMA.
var harmless = []*regexp.Regexp{
	// Emulated processors are slow, and the clock of this machine may stand still for a while.
	regexp.MustCompile(`clocksource: `),
	regexp.MustCompile(`sched: RT throttling activated`),
}

// Warnings of drivers that are known. The kernel puts a warning between two lines; it is known if a
// line between them matches.
var (
	cutHere  = regexp.MustCompile(`-+\[ cut here \]-+`)
	endTrace = regexp.MustCompile(`---\[ end trace `)
	known    = []*regexp.Regexp{
		// Of rxe of 6.1, seen once when processes were killed: a tasklet of a QP was to run that
		// was not scheduled any more. The kernel does not run it (kernel/softirq.c,
		// tasklet_clear_sched).
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
			if slices.ContainsFunc(log[:n], func(line string) bool { return matches(known, line) }) {
				log = log[n:]
				continue
			}
		}
		left, log = append(left, log[:n]...), log[n:]
	}
	return left
}

// complaints are the lines of trouble that are new.
func complaints(before, after []string) []string {
	var found []string
	for _, line := range withoutKnown(after) {
		if trouble.MatchString(line) && !slices.Contains(before, line) && !matches(harmless, line) {
			found = append(found, line)
		}
	}
	return found
}

func matches(list []*regexp.Regexp, line string) bool {
	return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(line) })
}
