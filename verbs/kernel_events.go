// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// asyncTarget is what an asynchronous event can be about.
type asyncTarget interface {
	// event acts on an event and puts the handle and the reason into it.
	event(ev *AsyncEvent)
}

// compSource is a CQ whose events come through a channel.
type compSource interface {
	// notified returns the handle if an event of the device's is one for the program, or else nil.
	notified() *CQ
}
