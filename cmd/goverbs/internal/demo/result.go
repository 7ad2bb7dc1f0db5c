// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// runResult is the output of demo --json, as one line.
type runResult struct {
	Device string       `json:"device"`
	PIDs   []int        `json:"pids"` // this process first
	Steps  []stepResult `json:"steps"`
	OK     bool         `json:"ok"`
}

// stepResult is the outcome of one step. A step that was not reached is not ok.
type stepResult struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Ops  int    `json:"ops"` // completed operations
	// Skipped is why the step was skipped, for example "device has no imm64". That is ok on every
	// device except the user-space RNIC.
	Skipped string `json:"skipped,omitempty"`
	// Without is why the step did less than on other devices, in the same form.
	Without string `json:"without,omitempty"`

	reached bool
}

func newResult(device string) *runResult {
	r := &runResult{Device: device, PIDs: []int{os.Getpid()}}
	for _, name := range StepNames() {
		r.Steps = append(r.Steps, stepResult{Name: name})
	}
	return r
}

// step returns the entry of a step, or nil for an unknown name.
func (r *runResult) step(name string) *stepResult {
	for i := range r.Steps {
		if r.Steps[i].Name == name {
			return &r.Steps[i]
		}
	}
	return nil
}

// summary returns the text for people at the end of a successful demo.
func (r *runResult) summary() string {
	var skipped []string
	for _, s := range r.Steps {
		if s.Skipped != "" {
			skipped = append(skipped, s.Name)
		}
	}
	if len(skipped) == 0 {
		return fmt.Sprintf("verified: all %d steps", len(r.Steps))
	}
	return fmt.Sprintf("verified: %d of %d steps; skipped: %s", len(r.Steps)-len(skipped), len(r.Steps),
		strings.Join(skipped, ", "))
}

// err returns nil if every step is ok.
func (r *runResult) err() error {
	var failed []string
	missed := 0
	for _, s := range r.Steps {
		switch {
		case !s.reached:
			missed++
		case !s.OK:
			failed = append(failed, s.Name)
		}
	}
	if len(failed) == 0 && missed == 0 {
		return nil
	}
	err := fmt.Errorf("%w: %s", errNotVerified, strings.Join(failed, ", "))
	if missed > 0 {
		err = fmt.Errorf("%w; %d steps were not reached", err, missed)
	}
	return err
}

func (r *runResult) write(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
