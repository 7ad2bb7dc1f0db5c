// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "time"

func (q *ledgerQP) flushIfEnded() {
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone {
		q.flushEnded()
	}
}

// flushEnded flushes a QP that has moved to ERR. It waits until the device has flushed its
// requests, and then flushes the rest: requests that the device lost, and requests it never
// received. The caller holds modify.
func (q *ledgerQP) flushEnded() {
	if !q.ended || q.flushed {
		return
	}
	q.flushed = true
	pause := 20 * time.Microsecond
	for start := time.Now(); ; {
		q.sends.cq.fetchAll()
		q.recvs.cq.fetchAll()
		if q.lent() == 0 || time.Since(start) >= q.flushTime {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	q.sends.mu.Lock()
	q.dropHeld()
	q.sends.mu.Unlock()
	q.flushRest(&q.sends)
	q.flushRest(&q.recvs)
}

// lent returns the number of requests that the device still has.
func (q *ledgerQP) lent() int {
	q.sends.mu.Lock()
	defer q.sends.mu.Unlock()
	q.recvs.mu.Lock()
	defer q.recvs.mu.Unlock()
	return q.sends.lent + q.recvs.lent
}

// flushRest flushes the requests that the device will not.
func (q *ledgerQP) flushRest(l *ledgerQueue) {
	l.cq.mu.Lock()
	defer l.cq.mu.Unlock()
	l.mu.Lock()
	l.flush(q.num)
	l.flushed = true
	l.cq.advance(q, l)
	l.mu.Unlock()
	l.cq.ring()
}
