// SPDX-License-Identifier: BSD-3-Clause

package lifetime

import (
	"sync/atomic"
	"time"
)

// closedBit marks a Guard that is shut; the bits below it count the calls in progress.
const closedBit = int64(1) << 62

// Guard admits calls until it is shut, and then lets the closer wait for those in progress. The
// zero value is open. All methods may be called concurrently; Enter and Exit cost one atomic
// operation each.
type Guard struct {
	state   atomic.Int64
	drained atomic.Pointer[chan struct{}]
}

// Enter admits a call. Once the guard is shut it reports false, and Exit must not be called.
func (g *Guard) Enter() bool {
	if g.state.Add(1)&closedBit == 0 {
		return true
	}
	g.Exit()
	return false
}

// Exit ends a call that Enter admitted.
func (g *Guard) Exit() {
	if g.state.Add(-1) != closedBit {
		return
	}
	// The last call left a shut guard, which has its channel. A refused Enter may get here again:
	// the channel holds one token, and Drain checks the count itself.
	select {
	case *g.drained.Load() <- struct{}{}:
	default:
	}
}

// Shut closes the guard to new calls. It reports whether this call was the one that shut it.
func (g *Guard) Shut() bool {
	ch := make(chan struct{}, 1)
	g.drained.CompareAndSwap(nil, &ch)
	return g.state.Or(closedBit)&closedBit == 0
}

// Closed reports whether the guard has been shut.
func (g *Guard) Closed() bool { return g.state.Load()&closedBit != 0 }

// Drain waits until no call is in progress in a shut guard, for at most timeout (0 = no limit), and
// reports whether none is left. Only one goroutine may wait at a time.
func (g *Guard) Drain(timeout time.Duration) bool {
	if g.state.Load() == closedBit {
		return true
	}
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for g.state.Load() != closedBit {
		select {
		case <-*g.drained.Load():
		case <-expired:
			return g.state.Load() == closedBit
		}
	}
	return true
}
