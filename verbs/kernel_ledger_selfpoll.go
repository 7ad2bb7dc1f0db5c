// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "time"

// relieve takes completions out of the device's queue before those that the poller does not see fill it.
func (cq *ledgerCQ) relieve() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// A failure of the library's is for the next Poll.
	_ = cq.fetch(cq.soft.len() + hiddenSlack)
}

// selfPoll is called after a post to a QP that has so many requests under way. The provider polls the device itself for as long
// as requests wait for admission, or many completions are expected that the poller does not see; and if there may not be room for
// all in a CQ that nobody polls, until it has overflowed or been polled, or 100 ms have passed: the device's own queue is longer
// than that of the program.
func (cq *ledgerCQ) selfPoll(requests int) {
	if (cq.needed() || cq.full(requests)) && cq.selfPolls.CompareAndSwap(false, true) {
		go cq.keepPolling(requests)
	}
}

// full reports whether there may not be room for so many completions more.
func (cq *ledgerCQ) full(requests int) bool {
	return int(cq.waiting.Load())+requests > cq.CQE() && !cq.lost.Load()
}

// needed reports whether completions have to be taken from the device, whoever polls.
func (cq *ledgerCQ) needed() bool { return cq.held.Load() > 0 || cq.hidden.Load() > hiddenSlack/2 }

// keepPolling polls, the more rarely the longer nothing has come.
func (cq *ledgerCQ) keepPolling(requests int) {
	const least, most = 20 * time.Microsecond, 50 * time.Millisecond
	begin := time.Now()
	for moved := begin; ; {
		time.Sleep(min(max(time.Since(moved)/16, least), most))
		before := cq.held.Load() + cq.hidden.Load()
		cq.relieve()
		if cq.held.Load()+cq.hidden.Load() != before {
			moved = time.Now()
		}
		if cq.needed() || cq.full(requests) && time.Since(begin) < 100*time.Millisecond {
			continue
		}
		cq.selfPolls.Store(false)
		// A post may have seen selfPolls at the end.
		if !cq.needed() || !cq.selfPolls.CompareAndSwap(false, true) {
			return
		}
	}
}
