// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"github.com/goverbs/goverbs/verbs"
)

// controlRoom is how many places data leaves free in the send queue: enough for two messages of two
// requests each.
const controlRoom = 4

// sendID marks the completions of send requests; those of receives contain their slot number.
const sendID = 1 << 63

// dataWRs returns the number of requests that a message with data needs.
func (c *Conn) dataWRs() int {
	if c.res.iwarp {
		return 2
	}
	return 1
}

// sendData sends n bytes of the send buffer; there must be room for them. The caller holds mu and
// the lock of wr.
func (c *Conn) sendData(at, n int) {
	to := c.out.take(n)
	c.post(newMessage(opData, uint32(n)), c.filled(at, n), to, n, false)
}

// filled returns n bytes of the send buffer as an SGE.
func (c *Conn) filled(at, n int) verbs.SGE {
	return verbs.SGE{Addr: c.res.local.Addr() + uint64(at), Length: uint32(n), LKey: c.res.local.LKey()}
}

// sendControl sends the messages without data that are due, as far as the queue has room. The
// caller holds mu.
func (c *Conn) sendControl() {
	for !c.hushed && !c.down && !c.saidBye {
		due, publish := c.in.grantDue()
		switch {
		case c.wantBye:
			if c.queue.free < 1 {
				return
			}
			c.saidBye = true
			c.tell(newMessage(opControl, ctrlDisconnect), true)
		case due && publish:
			if c.queue.free < c.dataWRs() {
				return
			}
			c.publish()
		case due:
			if c.queue.free < 1 {
				return
			}
			c.tell(newMessage(opGrant, uint32(c.in.grant())), false)
		case c.queue.free < 1:
			return
		case c.wantShut:
			c.wantShut = false
			c.tell(newMessage(opControl, ctrlShutdown), false)
		default:
			return
		}
	}
}

// publish sends an entry for the next part of the receive buffer together with a new limit.
func (c *Conn) publish() {
	r := c.res
	at, n := c.in.publish()
	slot := r.slotsAt + c.queue.next()*slotLen
	e := entry{r.remote.Addr() + uint64(r.ringAt+at), r.remote.RKey(), uint32(n)}
	e.put(r.local.Bytes()[slot:], c.order)
	from := verbs.SGE{Addr: r.local.Addr() + uint64(slot), Length: entryLen, LKey: r.local.LKey()}
	to := entry{c.table.addr + uint64(c.place)*entryLen, c.table.key, entryLen}
	c.place = (c.place + 1) % c.table.length
	c.post(newMessage(opGrant, uint32(c.in.grant())), from, to, 0, false)
}

// tell sends a message without data.
func (c *Conn) tell(m message, force bool) {
	c.post(m, verbs.SGE{}, entry{addr: c.table.addr, key: c.table.key}, 0, force)
}

// post writes from, which may be empty, to the peer's memory, followed by a message. bytes is the
// number of stream bytes among them, which the completion frees. The queue must have room. The
// caller holds mu.
func (c *Conn) post(m message, from verbs.SGE, to entry, bytes int, force bool) {
	if c.down {
		return
	}
	r := c.res
	slot := r.slotsAt + (c.queue.next()+1)*slotLen - messageLen
	wrs := 1
	if r.iwarp && to.length > 0 {
		wrs = 2
	}
	var flags verbs.SendFlags
	if c.queue.push(wrs, bytes, c.out.size, force) {
		flags = verbs.SendSignaled
	}
	list, sges := &c.sendWRs, &c.sendSGEs
	sges[0] = from
	write := &list[0]
	*write = verbs.SendWR{ID: sendID, RemoteAddr: to.addr, RKey: to.key}
	if to.length > 0 {
		write.SGL = sges[:1]
		if int(from.Length) <= r.cfg.Inline {
			write.Flags = verbs.SendInline
		}
	}
	if !r.iwarp {
		write.Opcode, write.Imm = verbs.WRRDMAWriteWithImm, uint32(m)
		write.Flags |= flags
	} else {
		write.Opcode = verbs.WRRDMAWrite
		c.order.PutUint32(r.local.Bytes()[slot:], uint32(m))
		sges[1] = verbs.SGE{Addr: r.local.Addr() + uint64(slot), Length: messageLen, LKey: r.local.LKey()}
		if r.cfg.Inline >= messageLen {
			flags |= verbs.SendInline
		}
		list[wrs-1] = verbs.SendWR{ID: sendID, Opcode: verbs.WRSend, Flags: flags, SGL: sges[1:]}
	}
	if _, err := r.qp.PostSend(list[:wrs]); err != nil {
		c.fail(err)
	}
}

// poke sends an empty Write. The caller holds mu.
func (c *Conn) poke() {
	if c.down || c.saidBye || c.queue.free <= controlRoom {
		return
	}
	c.queue.push(1, 0, c.out.size, true)
	c.sendWRs[0] = verbs.SendWR{ID: sendID, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
		RemoteAddr: c.table.addr, RKey: c.table.key}
	if _, err := c.res.qp.PostSend(c.sendWRs[:1]); err != nil {
		c.fail(err)
	}
}
