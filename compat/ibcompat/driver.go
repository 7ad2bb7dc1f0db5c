// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"time"

	"github.com/goverbs/goverbs/internal/queue"
)

// driver is the goroutine of a CQ that continues composing on its QPs while the program does not
// poll. The first composed request starts it, and it sleeps while there is none.
type driver struct {
	wake, stop, done chan struct{}
}

func newDriver() driver {
	return driver{make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

func (d *driver) end() {
	close(d.stop)
	<-d.done
}

// The longer nothing completes, the longer the driver pauses between polls. It also polls rarely
// while the program does.
const (
	leastPause  = 20 * time.Microsecond
	polledPause = 200 * time.Microsecond
	mostPause   = 20 * time.Millisecond
)

// work records whether q is composing a request.
func (c *cq) work(q *qp, is bool) {
	c.gate.Lock()
	defer c.gate.Unlock()
	if !is {
		delete(c.busy, q)
		return
	}
	if _, was := c.busy[q]; was {
		return
	}
	c.busy[q] = struct{}{}
	if !c.started {
		c.started = true
		go c.drive()
	}
	queue.Signal(c.driver.wake)
}

// working returns the QPs that are composing a request.
func (c *cq) working(qps []*qp) []*qp {
	c.gate.Lock()
	defer c.gate.Unlock()
	for q := range c.busy {
		qps = append(qps, q)
	}
	return qps
}

func (c *cq) drive() {
	defer close(c.driver.done)
	var qps []*qp
	for {
		select {
		case <-c.driver.wake:
		case <-c.driver.stop:
			return
		}
		var polls, moved uint64
		last, pause := time.Now(), leastPause
		for {
			time.Sleep(pause)
			if qps = c.working(qps[:0]); len(qps) == 0 {
				break
			}
			c.mu.Lock()
			switch {
			case c.polls != polls:
				polls, last, pause = c.polls, time.Now(), polledPause
			default:
				c.fetch()
				for _, q := range qps {
					q.mu.Lock()
					q.pump() // requests that did not fit the inner queue
					q.settle()
					q.mu.Unlock()
				}
				c.settle()
				if c.moved != moved {
					moved, last = c.moved, time.Now()
				}
				pause = min(max(time.Since(last)/16, leastPause), mostPause)
			}
			c.mu.Unlock()
		}
	}
}
