// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// debt is what a connection owes to its peer and may owe it for a moment: the answer to a question
// that has come with a message, and news of receives. The program that takes the message most
// likely posts a receive next, or sends a message of its own, which then carries both. So while
// goroutines of the program take completions the debt waits:
//
//	none     something is owed                                  waiting; or paid at once: idle, in doubt, asked urgently
//	waiting  a message goes out, for whatever reason            none
//	waiting  the program polls and has sent nothing meanwhile   none, paid by a message of its own (pump.visit)
//	waiting  a goroutine is about to sleep in the pump          none, paid (pump.sleep)
//	waiting  the program stays away                             none, paid by the pump's goroutine after 1 to 2 restTime
//
// The last one is too long for a peer that waits. So when a debt has waited for longer than
// patience, the next trust ones do not.
//
// Invariants: a debt that waits is in the list of the pump. Who sets idle pays the list after that,
// and who adds to the list looks at idle after that; so no debt waits while everybody sleeps.
type debt struct {
	waits  bool
	listed bool // in the pump's list
	paying bool // nothing waits now
	since  int64
	doubt  int
}

// Implementation constants of debts.
const (
	patience = 25 * time.Microsecond
	trust    = 1024
)

// debts are the QPs of a pump that owe something, or did.
type debts struct {
	idle atomic.Bool // no goroutine of the program comes soon; written by who has the seat
	some atomic.Bool // the list is not empty

	mu   sync.Mutex // guards list and free; a leaf
	list []*qp
	free []*qp // memory for the next list
}

// postpones reports whether what is owed may wait now. The caller holds mu.
func (q *qp) postpones() bool {
	if q.paying || q.urgent || q.doubt > 0 || q.pump.idle.Load() {
		return false
	}
	if q.waits {
		return true
	}
	q.waits, q.since = true, clock()
	if !q.listed {
		q.listed = true
		q.pump.add(q)
	}
	return !q.pump.idle.Load()
}

// paid is called when a message goes out. The caller holds mu.
func (q *qp) paid() {
	switch {
	case q.waits:
		if q.waits = false; clock()-q.since > int64(patience) {
			q.doubt = trust
		}
	case q.doubt > 0:
		q.doubt--
	}
}

// pay pays the debt of a QP if it still has one.
func (q *qp) pay() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listed = false
	if q.waits && q.running() {
		q.paying = true
		q.advance()
		q.paying = false
	}
	q.waits = false // what could not be said now becomes a debt again when it can be
}

func (d *debts) add(q *qp) {
	d.mu.Lock()
	d.list = append(d.list, q)
	d.some.Store(true)
	d.mu.Unlock()
}

// pay pays all debts. The caller holds no lock.
func (d *debts) pay() {
	if !d.some.Load() {
		return
	}
	d.mu.Lock()
	list := d.list
	d.list, d.free = d.free, nil
	d.some.Store(false)
	d.mu.Unlock()
	for _, q := range list {
		q.pay()
	}
	clear(list)
	d.mu.Lock()
	d.free = list[:0]
	d.mu.Unlock()
}

// clock returns the time in nanoseconds since epoch, for comparisons.
func clock() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()
