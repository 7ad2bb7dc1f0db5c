// SPDX-License-Identifier: BSD-3-Clause

package usiw

// A connection that shares no CQ has its own watch, whose source is its socket. Connections that
// share a CQ, directly or through others, have one common watch, whose source is a set
// (set_linux_unsafe.go). From the set, a goroutine that polls a CQ or waits for it learns which
// connections have data, at a cost that does not grow with their number. A CQ therefore has one
// watch, and two watches merge when a connection joins them.
//
// A connection that is not a kernel socket cannot be in a set. It has its own watch, which its
// reader always keeps. If a CQ has only a few such connections, a goroutine that polls it also
// receives for them.

// gatherer is a stream that a set can hold.
type gatherer interface {
	stream
	waker
	// open is called before waitReadable.
	open() error
	// shut is called when waitReadable has returned or is about to return; the stream stays open.
	shut()
}

// setEvents is the most connections of a set that one take covers.
const setEvents = 16

// fullEvents replaces setEvents after a take that received more than turnBytes.
const fullEvents = 2

// set is a source that covers several connections.
type set interface {
	source
	add(c *conn) error
	remove(c *conn)
}

// solo is a source that covers one connection.
type solo struct{ c *conn }

func (s solo) wait(f func() bool) error { return s.c.s.waitReadable(f) }

func (s solo) wake() {
	if w, ok := s.c.s.(waker); ok {
		w.wake()
	}
}

func (s solo) quiet(on bool) bool {
	if on {
		return s.c.s.lowWater(busyPollBytes)
	}
	return s.c.s.lowWater(1)
}

func (s solo) take() (arrivals, bool) { return s.c.receive() }

func (s solo) poll() arrivals { return s.c.poll() }

func (s solo) yielder() *yielder { return &s.c.dev.yielder }

func (s solo) close() {
	if g, ok := s.c.s.(gatherer); ok {
		g.shut()
	}
}

// busyPollBytes is how many unread bytes wake the reader of a connection although a program polls
// it: there is then work for both.
const busyPollBytes = 1 << 20

// startWatch puts a connection under a watch. If the watch is new, its reader runs as a worker of c
// or of the device.
func (d *device) startWatch(c *conn) error {
	d.watching.Lock()
	defer d.watching.Unlock()
	if _, ok := c.s.(gatherer); !ok {
		c.q.sendCQ.drive(c)
		c.q.recvCQ.drive(c)
		d.start(newWatch(solo{c}), c)
		return nil
	}
	w, other := c.q.sendCQ.watch.Load(), c.q.recvCQ.watch.Load()
	if w == nil || other != nil && len(other.conns) > len(w.conns) {
		w, other = other, w
	}
	switch {
	case w == nil:
		return d.watchAlone(c)
	case w == other:
		other = nil
	}
	if _, gathers := w.src.(set); !gathers {
		s, err := newSet(&d.yielder)
		if err != nil {
			return err
		}
		small := w
		w = newWatch(s)
		if err := w.move(small); err != nil {
			s.close()
			return err
		}
		d.start(w, nil)
	}
	if other != nil {
		if err := w.move(other); err != nil {
			return err
		}
	}
	if err := w.src.(set).add(c); err != nil {
		return err
	}
	w.adopt(c)
	return nil
}

// watchAlone gives a connection its own watch. The caller holds watching.
func (d *device) watchAlone(c *conn) error {
	if err := c.s.(gatherer).open(); err != nil {
		return err
	}
	w := newWatch(solo{c})
	w.adopt(c)
	d.start(w, c)
	return nil
}

// start runs the reader of w, as a worker of c unless c is nil.
func (d *device) start(w *watch, c *conn) {
	if c == nil {
		d.readers.Go(func() { _ = w.read() })
		return
	}
	c.watched = w
	c.workers.Go(func() {
		if err := w.read(); err != nil {
			c.broken(err)
		}
	})
}

// adopt makes c one of w's connections. The caller holds watching.
func (w *watch) adopt(c *conn) {
	w.conns[c] = struct{}{}
	c.watched = w
	for _, q := range c.cqs() {
		q.tied++
		w.cqs[q] = struct{}{}
		q.setWatch(w)
	}
	w.mu.Lock()
	w.recallLocked() // a sleeping goroutine may not have needed this watch before
	w.mu.Unlock()
}

// move moves the connections of another watch to w, whose source is a set, and stops the other. The
// caller holds watching.
func (w *watch) move(other *watch) error {
	s := w.src.(set)
	for c := range other.conns {
		if err := s.add(c); err != nil {
			for c := range other.conns {
				s.remove(c)
			}
			return err
		}
	}
	for c := range other.conns {
		w.conns[c] = struct{}{}
		c.watched = w
	}
	for q := range other.cqs {
		w.cqs[q] = struct{}{}
		q.setWatch(w)
	}
	other.stop()
	w.mu.Lock()
	w.recallLocked()
	w.mu.Unlock()
	return nil
}

// endWatch removes a connection from its watch. A watch without connections ends.
func (d *device) endWatch(c *conn) {
	d.watching.Lock()
	defer d.watching.Unlock()
	w := c.watched
	if _, ok := c.s.(gatherer); !ok {
		c.q.sendCQ.undrive(c)
		c.q.recvCQ.undrive(c)
		w.stop()
		return
	}
	delete(w.conns, c)
	if s, ok := w.src.(set); ok {
		s.remove(c)
	}
	for _, q := range c.cqs() {
		if q.tied--; q.tied == 0 {
			delete(w.cqs, q)
			q.setWatch(nil)
		}
	}
	if len(w.conns) == 0 {
		w.stop()
	}
}

// cqs returns the one or two CQs of a connection.
func (c *conn) cqs() []*cq {
	if c.q.sendCQ == c.q.recvCQ {
		return []*cq{c.q.sendCQ}
	}
	return []*cq{c.q.sendCQ, c.q.recvCQ}
}
