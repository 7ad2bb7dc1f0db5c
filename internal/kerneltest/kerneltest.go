// SPDX-License-Identifier: BSD-3-Clause

// Package kerneltest tells a test whether programs and peers have harmed the kernel: objects of its
// RDMA subsystem that are left, and lines of trouble in its log. It needs the right to read the
// log, and the programs dmesg and rdma.
package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Kernel is the kernel as it was at a time.
type Kernel struct {
	log     []string
	objects int
	except  []string
}

// Look remembers the kernel's log and how many RDMA objects processes have. What this process has
// of the kinds in except ("ctx", "pd", ... as rdma-resource(8) names them) does not count, now and
// later: it may stay.
func Look(except ...string) (*Kernel, error) {
	log, err := readLog()
	if err != nil {
		return nil, err
	}
	list, err := objects(except)
	return &Kernel{log, len(list), except}, err
}

// Unharmed returns an error that names everything if the log has new lines of trouble, or if
// processes have more RDMA objects than before. The kernel has some time to free those of processes
// that have ended.
func (k *Kernel) Unharmed(within time.Duration) error {
	var errs []error
	left, err := objects(k.except)
	for end := time.Now().Add(within); err == nil && len(left) > k.objects && time.Now().Before(end); left,
		err = objects(k.except) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		errs = append(errs, err)
	} else if len(left) > k.objects {
		errs = append(errs, fmt.Errorf("rdma resource had %d objects of processes, and shows %d:\n%s", k.objects,
			len(left), strings.Join(left, "\n")))
	}
	log, err := readLog()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, line := range complaints(k.log, log) {
		errs = append(errs, fmt.Errorf("the kernel says: %s", line))
	}
	return errors.Join(errs...)
}

// owner finds the thread that made an object. The kernel's own objects have none.
var owner = regexp.MustCompile(` pid (\d+) `)

// objects lists what processes have of the kernel's RDMA subsystem, but for what this process has
// of some kinds.
func objects(except []string) (list []string, err error) {
	for _, kind := range []string{"cm_id", "qp", "srq", "cq", "mr", "ctx", "pd"} {
		out, err := exec.Command("rdma", "resource", "show", kind).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("rdma resource show %s: %w: %s", kind, err, out)
		}
		for line := range strings.Lines(string(out)) {
			made := owner.FindStringSubmatch(line)
			if made == nil {
				continue
			}
			if slices.Contains(except, kind) {
				if _, err := os.Stat("/proc/self/task/" + made[1]); err == nil {
					continue
				}
			}
			list = append(list, kind+": "+strings.TrimSpace(line))
		}
	}
	return list, nil
}
