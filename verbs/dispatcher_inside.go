// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"runtime"
	"strings"
	"time"
)

// Inside reports whether it is called from a function of the dispatcher, which must not wait:
// waiting for another completion there would deadlock. Code that would wait calls Inside first and
// fails instead. Inside walks the stack only while a function of the dispatcher is running, so
// elsewhere it costs almost nothing.
func (d *Dispatcher) Inside() bool {
	calls := d.calls.Load()
	if calls%2 == 0 || !inServe() {
		return false
	}
	// The stack does not reveal which dispatcher it belongs to. If it is another one, the running
	// function of this one returns sooner or later.
	for range 50 {
		time.Sleep(time.Millisecond)
		if d.calls.Load() != calls {
			return false
		}
	}
	return true
}

// inServe reports whether serve is on the stack.
func inServe() bool {
	var pcs [64]uintptr
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		for frames := runtime.CallersFrames(pcs[:n]); ; {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, "/verbs.(*Dispatcher).serve") {
				return true
			}
			if !more {
				break
			}
		}
	}
}
