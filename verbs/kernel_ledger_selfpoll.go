// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "time"

// relieve takes completions out of the device's queue before it is filled by those that the program
// does not see. It reports false if the CQ is gone.
func (cq *ledgerCQ) relieve() bool {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// If the library fails here, the next Poll tells.
	_ = cq.fetch(cq.soft.len() + hiddenSlack)
	return !cq.gone
}

// selfPoll is called after a post. requests is how many the QP has under way. The provider polls
// the device itself as long as requests wait for admission, or many completions are expected that
// the program does not see. It also does so if a CQ that nobody polls may not have room for all
// completions, until that has overflowed or been polled, or nothing has come for expects: the
// device's own queue is longer than the program's, so the device would not notice the overflow.
func (cq *ledgerCQ) selfPoll(requests int) {
	if (cq.needed() || cq.full(requests)) && cq.selfPolls.CompareAndSwap(false, true) {
		go cq.keepPolling(requests)
	}
}

// full reports whether the CQ may have too little room for this number of further completions.
func (cq *ledgerCQ) full(requests int) bool {
	return int(cq.waiting.Load())+requests > cq.CQE() && !cq.lost.Load()
}

// needed reports whether completions have to be taken from the device even if the program does not
// poll.
func (cq *ledgerCQ) needed() bool { return cq.held.Load() > 0 || cq.hidden.Load() > hiddenSlack/2 }

// expects is how long a completion that may overflow the CQ is waited for. On a busy machine, or to
// a peer far away, it takes a while.
const expects = 10 * time.Second

// keepPolling polls. The longer nothing has come, the longer it sleeps in between.
func (cq *ledgerCQ) keepPolling(requests int) {
	const least, most = 20 * time.Microsecond, 50 * time.Millisecond
	for moved := time.Now(); ; {
		time.Sleep(min(max(time.Since(moved)/16, least), most))
		before := cq.held.Load() + cq.hidden.Load() + cq.waiting.Load()
		open := cq.relieve()
		if cq.held.Load()+cq.hidden.Load()+cq.waiting.Load() != before {
			moved = time.Now()
		}
		if open && (cq.needed() || cq.full(requests) && time.Since(moved) < expects) {
			continue
		}
		cq.selfPolls.Store(false)
		// A post may have seen selfPolls at the end.
		if !open || !cq.needed() || !cq.selfPolls.CompareAndSwap(false, true) {
			return
		}
	}
}
