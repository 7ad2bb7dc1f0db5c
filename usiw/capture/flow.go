// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
)

// phase is the kind of data that a stream currently carries.
type phase uint8

const (
	inFrame phase = iota // the initial frame
	inFPDU               // FPDUs, until the end
	inRaw                // data other than MPA, until the end
)

// maxUnit is the length of the largest FPDU that a length field can describe, including markers.
var maxUnit = mpa.MarkedLen(0, mpa.FPDULen(mpa.MaxULPDU))

// flow is one direction of a connection, divided into units: frames and FPDUs. Each unit becomes a
// packet, because Wireshark finds no FPDUs after a frame in the same packet and, with markers, only
// one FPDU per packet.
type flow struct {
	seq     uint32    // the sequence number of the next byte
	acked   uint32    // the sequence number up to which the other end has acknowledged
	time    time.Time // when the last bytes arrived
	phase   phase
	markers bool   // FPDUs have markers
	pos     uint64 // position of the next byte in the stream of FPDUs
	left    int    // bytes missing from a unit whose beginning has been written
	part    []byte // the beginning of a unit that is not written yet; nil if none
}

// want returns the length of the unit that begins with b, or a lower bound while b is too short to
// contain the length. While the result exceeds len(b), the unit is incomplete. If the beginning of
// a unit has already been written, only the rest counts.
func (f *flow) want(b []byte) int {
	switch {
	case f.left > 0:
		return f.left
	case f.phase == inFrame:
		if _, n, err := mpa.ParseFrame(b); err == nil {
			return n
		} else if !errors.Is(err, io.ErrUnexpectedEOF) {
			f.phase = inRaw
			return maxPayload
		}
		if len(b) < mpa.FrameLen {
			return mpa.FrameLen
		}
		return mpa.FrameLen + int(binary.BigEndian.Uint16(b[mpa.FrameLen-2:]))
	case f.phase == inRaw:
		return maxPayload
	}
	n, _ := f.fpdu(b)
	return n
}

// fpdu returns the length of the FPDU that begins with b, and whether b contains that length.
func (f *flow) fpdu(b []byte) (n int, known bool) {
	prefix := 0
	if f.markers {
		prefix = mpa.MarkedPrefix(f.pos)
	}
	if len(b) < prefix+mpa.LengthLen {
		return prefix + mpa.LengthLen, false
	}
	n = mpa.FPDULen(int(binary.BigEndian.Uint16(b[prefix:])))
	if f.markers {
		n = mpa.MarkedLen(f.pos, n)
	}
	return n, true
}

// add adds the bytes of p to direction i and writes the units that are complete.
func (w *Writer) add(c *connection, i int, p *usiw.Packet) {
	f := &c.flows[i]
	f.time = p.Time
	// A unit that arrives in one packet is assembled in scratch; one that takes several packets has
	// its own memory.
	unit, own := w.scratch[:0], false
	if f.part != nil {
		w.held -= f.releasable()
		unit, own, f.part = f.part, true, nil
	}
	for _, b := range p.Data {
		for len(b) > 0 {
			n := min(f.want(unit)-len(unit), len(b))
			unit, b = append(unit, b[:n]...), b[n:]
			if f.want(unit) > len(unit) {
				continue
			}
			w.unit(c, i, unit)
			unit, own = w.scratch[:0], false
		}
	}
	switch {
	case len(unit) == 0:
	case f.phase == inRaw:
		c.send(w, i, unit, true)
	case own:
		f.part = unit
	default:
		f.part = append([]byte(nil), unit...)
	}
	if w.held += f.releasable(); w.held > maxHeld {
		w.releaseAll(false)
	}
}

// unit writes a complete unit, or the rest of one.
func (w *Writer) unit(c *connection, i int, b []byte) {
	f := &c.flows[i]
	c.send(w, i, b, true)
	f.left = 0
	if f.phase != inFrame {
		return
	}
	// The frame of one end determines whether the other end sends markers.
	frame, _, err := mpa.ParseFrame(b)
	if err != nil || frame.Reply != (i == passive) {
		f.phase = inRaw
		return
	}
	f.phase = inFPDU
	c.flows[1-i].markers = frame.Markers
}

// releasable returns how many bytes release can write: the beginning of an FPDU whose length is
// known.
func (f *flow) releasable() int {
	if f.phase != inFPDU || f.part == nil {
		return 0
	}
	if _, known := f.fpdu(f.part); f.left == 0 && !known {
		return 0
	}
	return len(f.part)
}

// release writes the incomplete units that a connection holds. A unit of unknown length is written
// only if last is set, which means that no more bytes follow.
func (w *Writer) release(c *connection, last bool) {
	for i := range c.flows {
		f := &c.flows[i]
		n := f.releasable()
		if f.part == nil || n == 0 && !last {
			continue
		}
		w.held -= n
		left := f.want(f.part) - len(f.part)
		c.send(w, i, f.part, false)
		f.left, f.part = left, nil
	}
}

// releaseAll is release for all connections.
func (w *Writer) releaseAll(last bool) {
	for _, c := range w.conns {
		w.release(c, last)
	}
}
