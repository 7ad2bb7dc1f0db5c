// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import "time"

// Hot is the mode of the hot path: ibv_post_send, ibv_post_recv and ibv_poll_cq.
type Hot int

const (
	// HotOff records, checks and counts calls.
	HotOff Hot = iota
	// HotEndless writes 64 bytes for each send request and discards it. A poll always returns as
	// many completions as fit, for the QP created last on the CQ, with a counter as wr_id.
	HotEndless
	// HotPaired writes 64 bytes for each send request. Polls return each one once, with its wr_id.
	HotPaired
)

// SetHot sets the mode of all contexts, until Reset. Hot calls are not seen by Calls, Fail, Posted
// and Faults.
func SetHot(h Hot) { cSetHot(int(h)) }

// BenchPureCPost returns the total time that a C program needs to fill n flat descriptors (at most
// 64), convert them to a list of ibv_send_wr and post it with ibv_post_send to the hot path, iters
// times.
func BenchPureCPost(n, iters int) time.Duration { return time.Duration(cBenchPost(n, iters)) }

// BenchPureCPoll returns the time for polling n completions (at most 64) with ibv_poll_cq on the
// hot path and reading each, iters times.
func BenchPureCPoll(n, iters int) time.Duration { return time.Duration(cBenchPoll(n, iters)) }

// BenchCgoCall returns the time for calling a C function that does nothing, iters times.
func BenchCgoCall(iters int) time.Duration {
	start := time.Now()
	cNop(iters)
	return time.Since(start)
}
