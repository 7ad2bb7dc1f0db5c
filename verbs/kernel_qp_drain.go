// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// Marks are the last requests of the two queues of a QP that is being drained.
const (
	markSend = 1 << iota
	markRecv
)

// markID holds the wr_ids of the marks. The chance that a wr_id of the program equals one of them
// is 1 in 2^64.
var markID = [2]uint64{rand.Uint64(), rand.Uint64()}

// Drain waits for the completions of a QP in ERR.
func (q *kernelQP) Drain(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.drainMarks(ctx)
}

// drainMarks posts a request to each queue, which the device flushes last, and waits for both to
// complete.
func (q *kernelQP) drainMarks(ctx context.Context) error {
	if q.initial || q.qpState() != QPStateErr {
		return nil
	}
	for _, cq := range []*kernelCQ{q.sendCQ, q.recvCQ} {
		cq.mu.Lock()
		cq.drains++
		cq.slow.Store(true)
		cq.mu.Unlock()
		defer func() {
			cq.mu.Lock()
			cq.drains--
			cq.mu.Unlock()
		}()
	}
	pause := 5 * time.Microsecond
	for {
		done, err := q.postMarks()
		q.sendCQ.fetchAll()
		q.recvCQ.fetchAll()
		if err != nil || done && q.marks.Load() == q.marked {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Millisecond)
	}
}

// postMarks posts the marks that are still missing. It returns false while a queue is full.
func (q *kernelQP) postMarks() (bool, error) {
	full := false
	post := func(mark uint32, call string, result ibverbs.Posted) error {
		_, err := postResult(call, result)
		if errors.Is(err, ErrQueueFull) {
			full, err = true, nil
		} else if err == nil {
			q.marked |= mark
		}
		return err
	}
	if q.marked&markSend == 0 && q.typ != QPTypeUD { // a datagram needs a destination even to be flushed
		wr := ibverbs.Send{ID: markID[0], Op: flatOp(WRSend, SendSignaled, 0)}
		if err := post(markSend, "ibv_post_send", q.c.Send([]ibverbs.Send{wr}, nil, nil, nil)); err != nil {
			return false, err
		}
	}
	if q.marked&markRecv == 0 && q.srq == nil {
		wr := ibverbs.Recv{ID: markID[1]}
		if err := post(markRecv, "ibv_post_recv", q.c.Recv([]ibverbs.Recv{wr}, nil, nil)); err != nil {
			return false, err
		}
	}
	return !full, nil
}
