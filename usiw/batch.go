// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"math/bits"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/regmem"
)

// Sizes of a batch. A payload of up to copyLimit bytes is cheaper to copy than to pass to the
// kernel as a separate piece. One system call takes at most maxPieces pieces. The arena holds a
// whole batch, because with CRCs all of it is copied. A batch larger than batchBytes would slow
// down large messages, because the peer receives one batch while the next is copied and
// checksummed. It is 512 KiB plus room for the headers of a 512 KiB message and for one small
// message after it: a batch of its own would be received, and would wake the receiver, separately.
const (
	copyLimit  = 2 << 10
	batchBytes = 528 << 10
	maxPieces  = 1024
)

// Sizes of a small batch, used while much memory is held for slow peers. An FPDU whose payload is
// copied is then at most smallULPDU long, so that two fit in the arena, even with markers. Payload
// that is not copied has no such limit.
const (
	smallArena  = 8 << 10
	smallFull   = 3 << 10
	smallPieces = 64
	smallULPDU  = 4 << 10
)

// batch is a sequence of FPDUs sent in one system call. Headers, trailers and copied payloads are
// in an arena; large payloads without a CRC stay in registered memory.
type batch struct {
	arena  []byte
	pieces [][]byte // in the order of the stream
	open   int      // start of the arena bytes not yet in pieces
	refs   []*region
	ends   []int // offset of the end of each FPDU
	size   int   // total bytes
	sent   int
	piece  int // first piece that is not fully sent
	small  bool
	since  time.Time // when the socket first had no room for the rest; zero if it always had

	// The FPDU under construction.
	crc     uint32
	crcFrom int // start of the arena bytes not yet in crc
	ulpdu   int
	start   int    // its offset in the arena
	plain   []byte // scratch buffer of mark
}

var batchPool = sync.Pool{New: func() any {
	return &batch{arena: make([]byte, 0, batchBytes+mpa.MarkedLen(0, mpa.FPDULen(mpa.MaxULPDU))),
		pieces: make([][]byte, 0, maxPieces)}
}}

var smallPool = sync.Pool{New: func() any {
	return &batch{arena: make([]byte, 0, smallArena), pieces: make([][]byte, 0, smallPieces), small: true}
}}

// newBatch returns an empty batch from a pool.
func newBatch(small bool) *batch {
	if small {
		return smallPool.Get().(*batch)
	}
	return batchPool.Get().(*batch)
}

// free releases the memory that the batch refers to, and returns the batch to its pool.
func (b *batch) free() {
	b.reset()
	if b.small {
		smallPool.Put(b)
	} else {
		batchPool.Put(b)
	}
}

// memory returns the number of bytes that the batch itself occupies.
func (b *batch) memory() int64 {
	const word = bits.UintSize / 8
	return int64(cap(b.arena) + cap(b.plain) + word*(3*cap(b.pieces)+cap(b.refs)+cap(b.ends)))
}

// room reports whether another FPDU fits whose payload is in up to n pieces. Each piece of payload
// may need a piece of the arena before it, and the last one also a piece after it.
func (b *batch) room(n int) bool {
	full := batchBytes
	if b.small {
		full = smallFull
	}
	return b.size < batchBytes && len(b.arena) < full && len(b.pieces)+2*n+1 <= cap(b.pieces)
}

// extend returns n new bytes of the arena. The arena never moves.
func (b *batch) extend(n int) []byte {
	at := len(b.arena)
	b.arena = b.arena[:at+n]
	b.size += n
	return b.arena[at:]
}

// begin starts an FPDU with a ULPDU of the given length and returns room for the n bytes of its
// headers.
func (b *batch) begin(ulpdu, n int) []byte {
	b.crc, b.crcFrom, b.ulpdu, b.start = 0, len(b.arena), ulpdu, len(b.arena)
	h := b.extend(mpa.LengthLen + n)
	h[0], h[1] = byte(ulpdu>>8), byte(ulpdu)
	return h[mpa.LengthLen:]
}

// inline appends payload that has already been copied from the program.
func (b *batch) inline(data []byte) { copy(b.extend(len(data)), data) }

// copy appends payload from registered memory to the arena. It exits r, which the caller has
// entered. crc is set if end will compute the CRC: large payload is then checksummed here, while it
// is in the cache.
func (b *batch) copy(r *region, mem []byte, crc bool) reject {
	to := b.extend(len(mem))
	if !crc || len(mem) <= sumLen {
		return r.fetch(to, mem)
	}
	b.crc = mpa.CRC(b.crc, b.arena[b.crcFrom:len(b.arena)-len(mem)])
	b.crcFrom = len(b.arena)
	return r.fetchSum(to, mem, &b.crc)
}

// refer appends payload without copying it: it stays in registered memory until it has been sent.
// The caller has entered r. Such payload cannot have a CRC, because the program may change it
// before the kernel reads it.
func (b *batch) refer(r *region, mem []byte) {
	if len(b.refs) > 0 && b.refs[len(b.refs)-1] == r {
		r.exit()
	} else {
		b.refs = append(b.refs, r)
	}
	b.closePiece()
	b.pieces = append(b.pieces, mem)
	b.size += len(mem)
}

// end completes the FPDU with padding and CRC.
func (b *batch) end(crc bool) {
	pad := mpa.Pad(b.ulpdu)
	t := b.extend(pad + mpa.CRCLen)
	clear(t)
	if crc {
		b.crc = mpa.CRC(b.crc, b.arena[b.crcFrom:len(b.arena)-mpa.CRCLen])
		mpa.PutCRC(t[pad:], b.crc)
	}
	b.ends = append(b.ends, b.size)
}

// mark inserts markers into the last FPDU, which is complete but for its CRC and lies entirely in
// the arena. pos is its position in the stream.
func (b *batch) mark(pos uint64, crc bool) {
	b.plain = append(b.plain[:0], b.arena[b.start:]...)
	b.arena = mpa.AppendMarked(b.arena[:b.start], pos, b.plain, crc)
	b.size += len(b.arena) - b.start - len(b.plain)
	b.ends[len(b.ends)-1] = b.size
}

// whole returns the end offset of the last complete FPDU.
func (b *batch) whole() int {
	if n := len(b.ends); n > 0 {
		return b.ends[n-1]
	}
	return 0
}

// abandon drops the FPDU under construction.
func (b *batch) abandon() {
	whole := b.whole()
	b.closePiece()
	for b.size > whole {
		last := len(b.pieces) - 1
		p := b.pieces[last]
		if over := b.size - whole; len(p) > over {
			b.pieces[last] = p[:len(p)-over]
			b.size = whole
			return
		}
		b.size -= len(p)
		b.pieces = b.pieces[:last]
	}
}

func (b *batch) closePiece() {
	if len(b.arena) > b.open {
		b.pieces = append(b.pieces, b.arena[b.open:])
		b.open = len(b.arena)
	}
}

func (b *batch) empty() bool { return b.sent == b.size }

// unsent returns the pieces still to be sent.
func (b *batch) unsent() [][]byte { return b.pieces[b.piece:] }

// advance records that n bytes were sent.
func (b *batch) advance(n int) {
	b.sent += n
	for n > 0 {
		p := b.pieces[b.piece]
		if n < len(p) {
			b.pieces[b.piece] = p[n:]
			return
		}
		n -= len(p)
		b.piece++
	}
}

// rest returns a copy of the unsent part of a partly sent FPDU, or nil if there is none or its
// memory is gone.
func (b *batch) rest() (tail []byte) {
	missing := 0
	for _, end := range b.ends {
		if end >= b.sent {
			missing = end - b.sent
			break
		}
	}
	if b.sent == 0 {
		missing = 0
	}
	if missing == 0 {
		return nil
	}
	tail = make([]byte, missing)
	for at, pieces := 0, b.unsent(); at < missing; pieces = pieces[1:] {
		n := min(missing-at, len(pieces[0]))
		if !regmem.Guard(pieces[0], func() { regmem.Fetch(tail[at:at+n], pieces[0][:n]) }) {
			return nil
		}
		at += n
	}
	return tail
}

// reset empties the batch and releases the memory that it refers to.
func (b *batch) reset() {
	for _, r := range b.refs {
		r.exit()
	}
	clear(b.refs)
	clear(b.pieces)
	*b = batch{arena: b.arena[:0], pieces: b.pieces[:0], refs: b.refs[:0], ends: b.ends[:0], plain: b.plain[:0],
		small: b.small}
}
