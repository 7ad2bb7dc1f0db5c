// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the time after which calls of one direction fail. Setting it allocates only after it
// has passed.
type deadline struct {
	past   atomic.Bool
	passed func() // called without mu when the deadline passes

	mu    sync.Mutex // guards the fields below
	done  chan struct{}
	at    time.Time
	timer *time.Timer
}

func (d *deadline) init(passed func()) { d.done, d.passed = make(chan struct{}), passed }

// set sets the deadline; the zero time means none.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	if d.timer != nil {
		d.timer.Stop() // a concurrent call of look finds the new time
	}
	if d.past.Load() {
		d.past.Store(false)
		d.done = make(chan struct{})
	}
	d.at = at
	if !at.IsZero() {
		if left := time.Until(at); left <= 0 {
			d.passLocked()
		} else if d.timer == nil {
			d.timer = time.AfterFunc(left, d.look)
		} else {
			d.timer.Reset(left)
		}
	}
	now := d.past.Load()
	d.mu.Unlock()
	if now {
		d.passed()
	}
}

// look is called by the timer.
func (d *deadline) look() {
	d.mu.Lock()
	if d.at.IsZero() || d.past.Load() {
		d.mu.Unlock()
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		d.mu.Unlock()
		return
	}
	d.passLocked()
	d.mu.Unlock()
	d.passed()
}

// passLocked marks the deadline as passed. The caller holds mu.
func (d *deadline) passLocked() {
	d.past.Store(true)
	close(d.done)
}

// channel returns a channel that is closed when the current deadline passes.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// stop stops the timer permanently.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
