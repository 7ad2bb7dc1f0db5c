// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

// process handles completions and wakes the goroutines that wait for them. The caller holds the
// turn and mu.
func (c *Conn) process(wcs []verbs.WC) {
	for i := range wcs {
		switch wc := &wcs[i]; {
		case wc.Status != verbs.WCSuccess:
			c.fail(c.cause(wc))
		case wc.ID&sendID != 0:
			c.out.free(c.queue.pop())
		default:
			c.receive(wc)
		}
	}
	c.postIdle()
	c.sendControl()
	c.wakeReady()
}

// receive handles a message.
func (c *Conn) receive(wc *verbs.WC) {
	c.alive.heard.Store(true)
	c.hushed = false
	c.idle = append(c.idle, uint32(wc.ID))
	if c.peerGone || c.failure != nil {
		return
	}
	m, err := c.decode(wc)
	if err == nil {
		err = c.handle(m)
	}
	if err != nil {
		c.violated(err)
	}
}

// decode returns the message of a receive completion.
func (c *Conn) decode(wc *verbs.WC) (message, error) {
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		return message(wc.Imm), nil
	case c.res.iwarp && wc.ByteLen == messageLen:
		return message(c.order.Uint32(c.res.received(wc.ID))), nil
	}
	return 0, violation(UnknownMessage, uint64(wc.ByteLen), messageLen)
}

// handle acts on a message.
func (c *Conn) handle(m message) error {
	switch m.op() {
	case opData:
		if err := c.in.data(m.data()); err != nil {
			return err
		}
		if c.rclosed || c.closed {
			c.in.consume(c.in.unread)
		}
		return nil
	case opGrant:
		if err := c.out.grant(m.data()); err != nil {
			return err
		}
		return c.takeEntries()
	case opMapping:
		return c.takeMapping(m.data())
	case opControl:
		switch m.data() {
		case ctrlKeepalive:
			return nil
		case ctrlShutdown:
			c.in.ended = true
			return nil
		case ctrlDisconnect:
			c.in.ended, c.peerGone, c.wantBye = true, true, true
			return nil
		}
	}
	return violation(UnknownMessage, uint64(m), 0)
}

// takeEntries reads the entries that the peer published. The message does not say whether there are
// any.
func (c *Conn) takeEntries() error {
	for c.out.wanted() {
		e, ok, err := c.res.entryAt(c.looked)
		if err != nil || !ok {
			return err
		}
		if err := c.out.publish(e); err != nil {
			return err
		}
		c.looked = (c.looked + 1) % tableEntries
	}
	return nil
}

// postIdle posts receives again, in batches. The caller holds mu.
func (c *Conn) postIdle() {
	for len(c.idle) >= recvBatch && !c.down && !c.peerGone {
		for i, slot := range c.idle[len(c.idle)-recvBatch:] {
			c.recvWRs[i] = c.res.receive(slot, c.recvSGEs[i:i+1])
		}
		c.idle = c.idle[:len(c.idle)-recvBatch]
		if _, err := c.res.qp.PostRecv(c.recvWRs[:]); err != nil {
			c.fail(err)
		}
	}
}

// fail marks the connection as failed. The caller holds mu.
func (c *Conn) fail(cause error) {
	if c.down {
		return
	}
	c.down = true
	if !c.peerGone {
		c.failure = cause
	}
	c.wakeReady()
}

// violated terminates the connection because of a protocol violation. The caller holds mu.
func (c *Conn) violated(err error) {
	if c.down {
		return
	}
	c.fail(err)
	go c.id.Disconnect() // it waits for the device
}

// cause returns the reason why a request failed.
func (c *Conn) cause(wc *verbs.WC) error {
	switch err := c.id.Err(); {
	case errors.Is(err, io.EOF):
		return errGone
	case wc.Status == verbs.WCWRFlushErr && err != nil:
		return err
	}
	return c.res.qp.Cause(wc)
}

// errGone reports that the peer's device closed the connection although its program had not.
var errGone = errors.New("the peer has gone")
