// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// debt is the delayed acknowledgement of a connection: the answer to a FlagAsk that came with a
// message, and adverts of new receives. The program that got the message usually posts a receive
// next or sends a message, which can carry both. So while goroutines of the program poll, the
// acknowledgement is delayed:
//
//	state    event                                           next
//	none     something is to be acknowledged                 waiting; or sent at once if
//	                                                         idle, in doubt or urgent
//	waiting  any message is sent                             none
//	waiting  the program polls and has sent nothing since    none, sent (pump.visit)
//	waiting  a goroutine is about to sleep in the pump       none, sent (pump.sleep)
//	waiting  the program stays away                          none, sent by the pump's
//	                                                         goroutine in 1 to 2 restTime
//
// The last is too long for a peer that waits. So after an acknowledgement was delayed for longer
// than patience, the next trust ones are sent at once.
//
// Invariant: a waiting acknowledgement is in the pump's list. Whoever sets idle sends the list
// afterwards, and whoever adds to the list checks idle afterwards, so none waits while every
// goroutine sleeps.
type debt struct {
	waits  bool
	listed bool // in the pump's list
	paying bool // do not delay
	since  int64
	doubt  int
}

// Implementation constants of delayed acknowledgements.
const (
	patience = 25 * time.Microsecond
	trust    = 1024
)

// debts lists the QPs of a pump that may have a delayed acknowledgement.
type debts struct {
	idle atomic.Bool // no goroutine of the program will poll soon; written by the holder of the seat
	some atomic.Bool // the list is not empty

	mu   sync.Mutex // guards list and free; a leaf
	list []*qp
	free []*qp // memory for the next list
}

// postpones reports whether an acknowledgement may be delayed now. The caller holds mu.
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

// paid is called when a message is sent. The caller holds mu.
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

// pay sends the delayed acknowledgement of a QP, if it is still pending.
func (q *qp) pay() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listed = false
	if q.waits && q.running() {
		q.paying = true
		q.advance()
		q.paying = false
	}
	q.waits = false // whatever could not be sent is delayed again when it can be
}

func (d *debts) add(q *qp) {
	d.mu.Lock()
	d.list = append(d.list, q)
	d.some.Store(true)
	d.mu.Unlock()
}

// pay sends all delayed acknowledgements. The caller holds no lock.
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
