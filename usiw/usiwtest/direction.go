// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"bytes"
	"io"
	"math"
	"slices"
	"time"
)

// Direction is one direction of a connection. Its methods set up faults at an offset: the number of
// bytes that the sender has written since the connection began, including MPA frames but not
// inserted bytes. A fault at an offset that has already been read occurs at once, or not at all if
// it would change bytes already read. All methods may be called concurrently.
type Direction struct {
	link   *Link
	buffer int // most bytes in queue

	// Guarded by link.mu.
	queue   []parcel // written but not read
	queued  int      // bytes in queue
	written int64
	read    int64 // offset of the next byte to be read
	fin     bool  // the sender has ended the stream
	gone    bool  // the reader has closed its end

	stalled bool
	split   int // most bytes per read; 0 = any number
	delay   time.Duration
	flips   map[int64]byte
	inserts []insert // by offset
	cutAt   int64    // noOffset = never
	endAt   int64    // noOffset = never
}

// noOffset is an offset that no stream reaches.
const noOffset = math.MaxInt64

// parcel is a queue entry: the bytes of one write, or part of it. A parcel without bytes marks the
// end of the stream.
type parcel struct {
	b   []byte
	due time.Time // zero = at once
}

// insert holds bytes to insert before the sender's byte at an offset.
type insert struct {
	at int64
	b  []byte
}

func newDirection(l *Link, buffer int) *Direction {
	return &Direction{link: l, buffer: buffer, flips: make(map[int64]byte), cutAt: noOffset, endAt: noOffset}
}

// Written returns the number of bytes that the sender has written, which is the offset of the next
// byte.
func (d *Direction) Written() int64 {
	d.link.mu.Lock()
	defer d.link.mu.Unlock()
	return d.written
}

// Corrupt flips the bits of mask in the byte at offset off. Several calls for the same byte
// accumulate.
func (d *Direction) Corrupt(off int64, mask byte) {
	d.change(func() {
		if off >= d.read {
			d.flips[off] ^= mask
		}
	})
}

// Insert inserts a copy of b before the byte at offset off, after any bytes inserted there earlier.
func (d *Direction) Insert(off int64, b []byte) {
	d.change(func() {
		i := len(d.inserts)
		for i > 0 && d.inserts[i-1].at > off {
			i--
		}
		d.inserts = slices.Insert(d.inserts, i, insert{off, bytes.Clone(b)})
	})
}

// CutAt resets the connection, as Link.Cut does, once the bytes before offset off have been read.
func (d *Direction) CutAt(off int64) { d.change(func() { d.cutAt = off }) }

// EndAt ends the stream before offset off, for its reader only: bytes that the sender writes from
// there on are lost, and the sender gets no error. With Written as the offset, it half-closes the
// stream immediately.
func (d *Direction) EndAt(off int64) { d.change(func() { d.endAt = off }) }

// Split makes every Read return at most n bytes, so that a message arrives in many pieces (0
// removes the limit).
func (d *Direction) Split(n int) { d.change(func() { d.split = n }) }

// Delay makes bytes written from now on readable only after t. Bytes stay in order.
func (d *Direction) Delay(t time.Duration) { d.change(func() { d.delay = t }) }

// Stall keeps the reader from receiving bytes until Resume. To the sender, the peer has stopped
// reading: writes wait once the buffer is full.
func (d *Direction) Stall() { d.change(func() { d.stalled = true }) }

// Resume ends a Stall.
func (d *Direction) Resume() { d.change(func() { d.stalled = false }) }

// change calls f to change the faults, and applies those that are due.
func (d *Direction) change(f func()) {
	d.link.mu.Lock()
	defer d.link.mu.Unlock()
	f()
	d.arrive()
	d.link.changed.Broadcast()
}

// arrive applies the faults at the offset reached. The caller holds link.mu.
func (d *Direction) arrive() {
	switch {
	case d.read >= d.cutAt && !d.link.reset:
		d.link.cut()
	case d.read >= d.endAt:
		d.drop()
	}
}

// drop discards the unread bytes. The caller holds link.mu.
func (d *Direction) drop() { d.queue, d.queued = nil, 0 }

// put queues as many of the sender's bytes as there is room for, and returns their number. The
// caller holds link.mu.
func (d *Direction) put(b []byte) int {
	if d.read >= d.endAt {
		d.written += int64(len(b))
		return len(b)
	}
	n := min(len(b), d.buffer-d.queued)
	if n > 0 {
		d.post(bytes.Clone(b[:n]))
		d.queued += n
		d.written += int64(n)
	}
	return n
}

// finish queues the end of the stream. The caller holds link.mu.
func (d *Direction) finish() {
	if !d.fin {
		d.fin = true
		d.post(nil)
	}
}

func (d *Direction) post(b []byte) {
	p := parcel{b: b}
	if d.delay > 0 {
		p.due = time.Now().Add(d.delay)
		time.AfterFunc(d.delay, func() {
			d.link.mu.Lock()
			defer d.link.mu.Unlock()
			d.link.changed.Broadcast()
		})
	}
	d.queue = append(d.queue, p)
	d.link.changed.Broadcast()
}

// take moves the bytes that can be read now into b, which is not empty. It returns 0 and no error
// if there are none, and io.EOF at the end of the stream. The caller holds link.mu.
func (d *Direction) take(b []byte) (n int, err error) {
	if d.stalled {
		return 0, nil
	}
	if d.split > 0 {
		b = b[:min(len(b), d.split)]
	}
	for n < len(b) && err == nil {
		k := 0
		if k, err = d.next(b[n:]); k == 0 {
			break
		}
		n += k
	}
	if n > 0 {
		d.arrive()
		d.link.changed.Broadcast()
		return n, nil
	}
	return 0, err
}

// next moves consecutive bytes into b. The caller holds link.mu.
func (d *Direction) next(b []byte) (int, error) {
	stop := min(d.cutAt, d.endAt)
	if len(d.inserts) > 0 {
		in := &d.inserts[0]
		if in.at <= d.read {
			n := copy(b, in.b)
			if in.b = in.b[n:]; len(in.b) == 0 {
				d.inserts = d.inserts[1:]
			}
			return n, nil
		}
		stop = min(stop, in.at)
	}
	switch {
	case d.read >= d.cutAt:
		return 0, nil // take resets the connection once the bytes before cutAt have been read
	case d.read >= d.endAt:
		return 0, io.EOF
	case len(d.queue) == 0:
		return 0, nil
	}
	front := &d.queue[0]
	if !front.due.IsZero() && front.due.After(time.Now()) {
		return 0, nil
	}
	if len(front.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, front.b[:min(int64(len(front.b)), stop-d.read)])
	for i := range b[:n] {
		off := d.read + int64(i)
		if mask, ok := d.flips[off]; ok {
			b[i] ^= mask
			delete(d.flips, off)
		}
	}
	d.read += int64(n)
	d.queued -= n
	if front.b = front.b[n:]; len(front.b) == 0 {
		d.queue = d.queue[1:]
	}
	return n, nil
}
