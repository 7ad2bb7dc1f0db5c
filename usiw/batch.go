// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"math/bits"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/regmem"
)

// Implementation constants of sending. A payload of up to copyLimit bytes is cheaper to copy than
// to give to the kernel as a separate piece. One system call takes at most maxPieces pieces; the
// arena has room for the whole batch, all of which is in it where there are CRCs. A batch larger
// than batchBytes would make large messages slower: the peer receives one batch while the next is
// checked and copied. It is 512 KiB, and so much more that such a message has room in it with its
// headers, and with a small one behind it: what a batch of its own brings is received, and wakes,
// alone.
const (
	copyLimit  = 2 << 10
	batchBytes = 528 << 10
	maxPieces  = 1024
)

// A small batch has an arena of 8 KiB. It is used while much memory waits for slow peers. An FPDU
// whose payload is copied is then no larger than smallULPDU: two of them fit, with markers too.
// Payload that is not copied has no such limit.
const (
	smallArena  = 8 << 10
	smallFull   = 3 << 10
	smallPieces = 64
	smallULPDU  = 4 << 10
)

// batch is a sequence of FPDUs that one system call sends. Headers, trailers and payloads are in an
// arena; large payloads that no CRC is computed of stay in registered memory.
type batch struct {
	arena  []byte
	pieces [][]byte // in the order of the stream
	open   int      // start of the arena bytes that are not in pieces yet
	refs   []*region
	ends   []int // offset of the end of each FPDU
	size   int   // total bytes
	sent   int
	piece  int // first piece that is not sent entirely
	small  bool
	since  time.Time // when the socket first had no room for the rest; zero = it always had room

	// The FPDU that is being built.
	crc     uint32
	crcFrom int // start of the arena bytes that are not in crc yet
	ulpdu   int
	start   int    // where it begins in the arena
	plain   []byte // scratch buffer of mark
}

var batchPool = sync.Pool{New: func() any {
	return &batch{arena: make([]byte, 0, batchBytes+mpa.MarkedLen(0, mpa.FPDULen(mpa.MaxULPDU))),
		pieces: make([][]byte, 0, maxPieces)}
}}

var smallPool = sync.Pool{New: func() any {
	return &batch{arena: make([]byte, 0, smallArena), pieces: make([][]byte, 0, smallPieces), small: true}
}}

// newBatch returns an empty batch.
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

// memory returns how many bytes the batch itself occupies.
func (b *batch) memory() int64 {
	const word = bits.UintSize / 8
	return int64(cap(b.arena) + cap(b.plain) + word*(3*cap(b.pieces)+cap(b.refs)+cap(b.ends)))
}

// room reports whether another FPDU fits whose payload is in up to n pieces. Each of them may need
// a piece of the arena before it, and the last one also a piece of the arena after it.
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

// begin starts an FPDU whose ULPDU has the given length and returns room for the n bytes of its
// headers.
func (b *batch) begin(ulpdu, n int) []byte {
	b.crc, b.crcFrom, b.ulpdu, b.start = 0, len(b.arena), ulpdu, len(b.arena)
	h := b.extend(mpa.LengthLen + n)
	h[0], h[1] = byte(ulpdu>>8), byte(ulpdu)
	return h[mpa.LengthLen:]
}

// inline appends payload that is a copy already.
func (b *batch) inline(data []byte) { copy(b.extend(len(data)), data) }

// copy appends payload from registered memory to the arena. The caller has entered r, which is
// exited here. crc says that end will ask for the CRC: large payload is summed here, while it is in
// the cache.
func (b *batch) copy(r *region, mem []byte, crc bool) reject {
	to := b.extend(len(mem))
	if !crc || len(mem) <= sumLen {
		return r.fetch(to, mem)
	}
	b.crc = mpa.CRC(b.crc, b.arena[b.crcFrom:len(b.arena)-len(mem)])
	b.crcFrom = len(b.arena)
	return r.fetchSum(to, mem, &b.crc)
}

// refer appends payload without a copy: it stays in registered memory until it has been sent. The
// caller has entered r. Such payload has no CRC: the program may change it before the kernel reads
// it.
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

// mark puts markers into the last FPDU, which is complete but for its CRC and is entirely in the
// arena. pos is its position in the stream.
func (b *batch) mark(pos uint64, crc bool) {
	b.plain = append(b.plain[:0], b.arena[b.start:]...)
	b.arena = mpa.AppendMarked(b.arena[:b.start], pos, b.plain, crc)
	b.size += len(b.arena) - b.start - len(b.plain)
	b.ends[len(b.ends)-1] = b.size
}

// whole returns the offset of the end of the last complete FPDU.
func (b *batch) whole() int {
	if n := len(b.ends); n > 0 {
		return b.ends[n-1]
	}
	return 0
}

// abandon drops the FPDU that is being built.
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

// unsent returns the pieces that are still to be sent.
func (b *batch) unsent() [][]byte { return b.pieces[b.piece:] }

// advance notes that n bytes have been sent.
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

// rest returns a copy of the unsent part of the FPDU that has been sent in part, nil if there is
// none or if its memory is gone.
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

// reset makes the batch empty and releases the memory that it refers to.
func (b *batch) reset() {
	for _, r := range b.refs {
		r.exit()
	}
	clear(b.refs)
	clear(b.pieces)
	*b = batch{arena: b.arena[:0], pieces: b.pieces[:0], refs: b.refs[:0], ends: b.ends[:0], plain: b.plain[:0],
		small: b.small}
}
