// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"runtime"
	"strings"
	"time"
)

// Inside reports whether it is called by a function of the dispatcher, which must not wait. A
// function that waits for another completion waits for itself; Inside is for code that would do so,
// to fail instead. It walks up the stack, and only if a function of the dispatcher is running, so
// elsewhere it costs nothing.
func (d *Dispatcher) Inside() bool {
	calls := d.calls.Load()
	if calls%2 == 0 || !inServe() {
		return false
	}
	// The stack does not say of which dispatcher. If it is another one, the function of this one
	// returns sooner or later.
	for range 50 {
		time.Sleep(time.Millisecond)
		if d.calls.Load() != calls {
			return false
		}
	}
	return true
}

// inServe reports whether serve is among the callers.
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
