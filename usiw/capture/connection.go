// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
)

// ackEvery is how many bytes of a stream may be unacknowledged. If no data flow in the other
// direction by then, a packet is added that only acknowledges.
const ackEvery = 128 << 10

// The ends of a connection, and the directions that originate from them.
const (
	active  = 0 // sends the Request
	passive = 1
)

// connection is the state of a connection.
type connection struct {
	ends   [2]endpoint
	shown  [2]netip.AddrPort // their addresses in the file
	tapped [2]bool           // the NIC at this end uses this Writer
	flows  [2]flow           // the streams that the ends send
}

// newConnection creates the n-th connection. Its initial sequence numbers let Wireshark distinguish
// it from an earlier one between the same ports.
func newConnection(first, second endpoint, n uint32) *connection {
	c := &connection{ends: [2]endpoint{first, second}}
	for i, e := range c.ends {
		c.shown[i] = e.shown(n, i)
		c.flows[i].seq = n
	}
	return c
}

// end returns the end of the connection with the given local address.
func (c *connection) end(local endpoint) int {
	if c.ends[active].AddrPort == local.AddrPort {
		return active
	}
	return passive
}

// sees records that the NIC at the given end sent or received bytes, and returns their direction.
// It reports false if they were already recorded when the other end sent them.
func (c *connection) sees(local endpoint, out bool) (direction int, ok bool) {
	i := c.end(local)
	c.tapped[i] = true
	if out {
		return i, true
	}
	return 1 - i, !c.tapped[1-i]
}

// maxName is the most bytes of an endpoint's name in a comment.
const maxName = 1024

// requestKey is how the frame that opens a connection begins (RFC 5044 section 7.1.1).
const requestKey = "MPA ID Req Frame"

// reopens reports whether p opens another connection between the same ends: p is a Request, and its
// sender has already sent its first frame. A NIC writes a Request on its own, and reads the header
// of one on its own. The first bytes that a NIC receives may be those already recorded when the
// other end sent them.
func (c *connection) reopens(local endpoint, p *usiw.Packet) bool {
	at := c.end(local)
	from := &c.flows[at]
	if !p.Out {
		from = &c.flows[1-at]
	}
	if from.phase == inFrame || !p.Out && !c.tapped[at] {
		return false
	}
	head := prefix(p.Data, mpa.FrameLen)
	if len(head) < mpa.FrameLen || !bytes.HasPrefix(head, []byte(requestKey)) {
		return false
	}
	private := int(binary.BigEndian.Uint16(head[mpa.FrameLen-2:]))
	n := size(p.Data)
	return private <= mpa.MaxPrivateData && (n == mpa.FrameLen || n == mpa.FrameLen+private)
}

// size returns the number of bytes in pieces.
func size(pieces [][]byte) (n int) {
	for _, b := range pieces {
		n += len(b)
	}
	return n
}

// prefix returns the first n bytes of pieces, or all if there are fewer.
func prefix(pieces [][]byte, n int) (head []byte) {
	for _, b := range pieces {
		if len(head) == n {
			break
		}
		head = append(head, b[:min(len(b), n-len(head))]...)
	}
	return head
}

// open writes the three packets of the TCP handshake.
func (c *connection) open(w *Writer, t time.Time) {
	comment := ""
	for i, e := range c.ends {
		if e.name == "" {
			continue
		}
		if comment != "" {
			comment += "; "
		}
		comment += fmt.Sprintf("%s is %.*s", c.shown[i], maxName, e.name)
	}
	a, p := &c.flows[active], &c.flows[passive]
	w.write(packet{time: t, from: c.shown[active], to: c.shown[passive], seq: a.seq, syn: true, comment: comment})
	a.seq++
	w.write(packet{time: t, from: c.shown[passive], to: c.shown[active], seq: p.seq, ack: a.seq, syn: true,
		answer: true})
	p.seq++
	a.acked = a.seq
	c.acknowledge(w, active, t)
}

// acknowledge writes a packet without data that acknowledges the other end's bytes.
func (c *connection) acknowledge(w *Writer, from int, t time.Time) {
	other := &c.flows[1-from]
	w.write(packet{time: t, from: c.shown[from], to: c.shown[1-from], seq: c.flows[from].seq, ack: other.seq,
		answer: true})
	other.acked = other.seq
}

// send writes bytes of one direction as packets. last is set if they end a frame or an FPDU.
func (c *connection) send(w *Writer, i int, b []byte, last bool) {
	f, other := &c.flows[i], &c.flows[1-i]
	if f.phase == inFPDU {
		f.pos += uint64(len(b))
	}
	for len(b) > 0 {
		n := min(len(b), maxPayload)
		w.write(packet{time: f.time, from: c.shown[i], to: c.shown[1-i], seq: f.seq, ack: other.seq, answer: true,
			push: last && n == len(b), payload: b[:n]})
		f.seq += uint32(n)
		other.acked = other.seq
		b = b[n:]
		if f.seq-f.acked >= ackEvery {
			c.acknowledge(w, 1-i, f.time)
		}
	}
}
