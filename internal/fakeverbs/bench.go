// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import "time"

// Hot is what the hot path does: ibv_post_send, ibv_post_recv and ibv_poll_cq.
type Hot int

const (
	// HotOff records, checks and counts.
	HotOff Hot = iota
	// HotEndless writes 64 bytes for each send request and forgets it; a poll is always full, with
	// completions of the QP that was created last on the CQ, their wr_id a counter.
	HotEndless
	// HotPaired writes 64 bytes for each send request; a poll gives each one back, with its wr_id,
	// once.
	HotPaired
)

// SetHot sets the mode of all contexts, until Reset. Counts, Fail, Posted and faults know nothing
// of hot calls.
func SetHot(h Hot) { cSetHot(int(h)) }

// BenchPureCPost measures what a C program needs to fill n flat descriptors (at most 64), to
// convert them to a list of ibv_send_wr and to post it with ibv_post_send to the hot path, iters
// times: the time of all.
func BenchPureCPost(n, iters int) time.Duration { return time.Duration(cBenchPost(n, iters)) }

// BenchPureCPoll measures ibv_poll_cq of n completions (at most 64) on the hot path with a look at
// each, iters times.
func BenchPureCPoll(n, iters int) time.Duration { return time.Duration(cBenchPoll(n, iters)) }

// BenchCgoCall measures a call of a C function that does nothing, iters times.
func BenchCgoCall(iters int) time.Duration {
	start := time.Now()
	cNop(iters)
	return time.Since(start)
}
