// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

// process handles completions and wakes those who wait for them. The caller has the turn and holds
// mu.
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

// decode returns the message of a receive.
func (c *Conn) decode(wc *verbs.WC) (message, error) {
	switch {
	case wc.Flags&verbs.WCWithImm != 0:
		return message(wc.Imm), nil
	case c.res.iwarp && wc.ByteLen == messageLen:
		return message(c.order.Uint32(c.res.received(wc.ID))), nil
	}
	return 0, violation(UnknownMessage, uint64(wc.ByteLen), messageLen)
}

// handle does what a message says.
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

// takeEntries takes what the peer has published. The message does not say whether there is
// something.
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

// fail notes that the connection is over. The caller holds mu.
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

// violated ends the connection because of what the peer did. The caller holds mu.
func (c *Conn) violated(err error) {
	if c.down {
		return
	}
	c.fail(err)
	go c.id.Disconnect() // it waits for the device
}

// cause is the reason for a request that failed.
func (c *Conn) cause(wc *verbs.WC) error {
	switch err := c.id.Err(); {
	case errors.Is(err, io.EOF):
		return errGone
	case wc.Status == verbs.WCWRFlushErr && err != nil:
		return err
	}
	return c.res.qp.Cause(wc)
}

// errGone: the peer's device ended the connection, and its program had not closed it.
var errGone = errors.New("the peer has gone")
