// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/json"
	"io"
	"os"
)

// demoResult is what demo --json prints, as one line.
type demoResult struct {
	Device string       `json:"device"`
	PIDs   []int        `json:"pids"` // this process first
	Steps  []stepResult `json:"steps"`
	OK     bool         `json:"ok"`
}

// stepResult is the outcome of one step; one that was not reached is not ok.
type stepResult struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Ops  int    `json:"ops"` // operations that were done
}

func newResult(device string) *demoResult {
	r := &demoResult{Device: device, PIDs: []int{os.Getpid()}}
	for _, name := range stepNames() {
		r.Steps = append(r.Steps, stepResult{Name: name})
	}
	return r
}

// step returns the entry of a step, nil for a name that no step has.
func (r *demoResult) step(name string) *stepResult {
	for i := range r.Steps {
		if r.Steps[i].Name == name {
			return &r.Steps[i]
		}
	}
	return nil
}

// verified reports whether every step is ok.
func (r *demoResult) verified() bool {
	for _, s := range r.Steps {
		if !s.OK {
			return false
		}
	}
	return true
}

func (r *demoResult) write(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
