// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "time"

// relieve polls the device, so that completions the program does not see cannot fill its queue. It
// returns false if the CQ is gone.
func (cq *ledgerCQ) relieve() bool {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// If the library fails here, the next Poll reports it.
	_ = cq.fetch(cq.soft.len() + hiddenSlack)
	return !cq.gone
}

// selfPoll is called after a post; requests is the number of requests that the QP has outstanding.
// The provider polls the device itself while requests are held back, or while many completions are
// expected that the program does not see. It also does so if the CQ may lack room for all
// completions and nobody polls it, until it has overflowed or been polled, or nothing has arrived
// for the time expects. The device would not notice such an overflow, because its own queue is
// longer than the program's.
func (cq *ledgerCQ) selfPoll(requests int) {
	if (cq.needed() || cq.full(requests)) && cq.selfPolls.CompareAndSwap(false, true) {
		go cq.keepPolling(requests)
	}
}

// full reports whether the CQ may lack room for this many more completions.
func (cq *ledgerCQ) full(requests int) bool {
	return int(cq.waiting.Load())+requests > cq.CQE() && !cq.lost.Load()
}

// needed reports whether the device must be polled even if the program does not poll.
func (cq *ledgerCQ) needed() bool { return cq.held.Load() > 0 || cq.hidden.Load() > hiddenSlack/2 }

// expects is how long selfPoll waits for a completion that may overflow the CQ. On a busy machine,
// or with a distant peer, one can take a while.
const expects = 10 * time.Second

// keepPolling polls the device. The longer nothing arrives, the longer it sleeps between polls.
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
		// A post may have found selfPolls still set just before this.
		if !open || !cq.needed() || !cq.selfPolls.CompareAndSwap(false, true) {
			return
		}
	}
}
