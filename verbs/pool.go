// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/goverbs/goverbs/internal/show"
)

// Pool is a fixed set of equally sized buffers in one region. All methods may be called
// concurrently. Only AllocPool allocates memory.
//
// Each buffer is either in the pool or out. Get takes one out; whoever holds it then returns it
// with Put.
type Pool struct {
	mr    *MR
	size  int
	step  int         // distance between buffers
	free  chan uint32 // numbers of the buffers in the pool
	ended chan struct{}

	mu     sync.Mutex // guards the fields below; a leaf lock: sending to free never blocks
	closed bool
	out    int
	uses   []uint32 // per buffer, the number of Gets and Puts; odd = out
}

// poolAlign is the alignment of buffers: no two share a cache line, and each starts at an address
// suitable for atomics.
const poolAlign = 64

// Buffer is a buffer taken out of a [Pool], valid from Get to Put. It is a small value that can be
// copied; returning one copy returns them all. The zero Buffer refers to no memory.
type Buffer struct {
	p    *Pool
	n    uint32
	uses uint32
}

// AllocPool allocates count zeroed buffers of size bytes in one region, registered as by
// [PD.AllocMR]. The offset of each buffer in the region is a multiple of 64. The caller must close
// the pool.
func (pd *PD) AllocPool(size, count int, access AccessFlags) (*Pool, error) {
	const op = "AllocPool"
	if err := pd.enter(op); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	if size <= 0 || count <= 0 {
		return nil, opError(op, pd.ctx.dev.Name(), invalid("%d buffers of %d bytes", count, size))
	}
	step := (size + poolAlign - 1) &^ (poolAlign - 1)
	if most := pd.ctx.attr.MaxMRSize; step < size || uint64(step) > most || uint64(count) > most/uint64(step) ||
		uint64(count) > 1<<31 {
		return nil, opError(op, pd.ctx.dev.Name(),
			fmt.Errorf("%w: %d buffers of %d bytes, max_mr_size is %d", ErrLimit, count, size, most))
	}
	mr, err := pd.AllocMR(step*count, access)
	if err != nil {
		return nil, opError(op, pd.ctx.dev.Name(), err)
	}
	p := &Pool{mr: mr, size: size, step: step, free: make(chan uint32, count), ended: make(chan struct{}),
		uses: make([]uint32, count)}
	for n := range count {
		p.free <- uint32(n)
	}
	return p, nil
}

// MR returns the region of the buffers. Only Pool.Close may close it.
func (p *Pool) MR() *MR { return p.mr }

// Size returns the size of each buffer in bytes.
func (p *Pool) Size() int { return p.size }

// Count returns the number of buffers, in the pool and out.
func (p *Pool) Count() int { return len(p.uses) }

// Get takes a buffer out of the pool, waiting if all are out. The memory is not cleared: it holds
// what the last user left. The error Is ctx.Err() when ctx is done and [ErrClosed] when the pool is
// closed.
func (p *Pool) Get(ctx context.Context) (Buffer, error) {
	if b, ok := p.TryGet(); ok {
		return b, nil
	}
	select {
	case n := <-p.free:
		if b, ok := p.take(n); ok {
			return b, nil
		}
	case <-ctx.Done():
		return Buffer{}, opError("Pool.Get", p.mr.ctx.dev.Name(), ctx.Err())
	case <-p.ended:
	}
	return Buffer{}, opError("Pool.Get", p.mr.ctx.dev.Name(), ErrClosed)
}

// TryGet takes a buffer out of the pool without waiting. It reports false if all are out or the
// pool is closed.
func (p *Pool) TryGet() (Buffer, bool) {
	select {
	case n := <-p.free:
		return p.take(n)
	default:
		return Buffer{}, false
	}
}

// take marks buffer n, received from free, as out.
func (p *Pool) take(n uint32) (Buffer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.free <- n // wake the next Get, which must fail too
		return Buffer{}, false
	}
	p.out++
	p.uses[n]++
	return Buffer{p, n, p.uses[n]}, true
}

// Put returns a buffer to the pool. No request may be using it. The error Is [ErrInvalid] if the
// buffer belongs to another pool or was already returned.
func (p *Pool) Put(b Buffer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case b.p != p:
		return opError("Pool.Put", p.mr.ctx.dev.Name(), invalid("a buffer of another pool"))
	case b.uses != p.uses[b.n]:
		return opError("Pool.Put", p.mr.ctx.dev.Name(), invalid("buffer %d has been put back before", b.n))
	}
	p.uses[b.n]++
	p.out--
	p.free <- b.n
	return nil
}

// Buffer returns the buffer with this number, which must be out. A request that has the number as
// its ID thus leads from its completion to the buffer. The error Is [ErrInvalid] if there is no
// such buffer or it is in the pool.
func (p *Pool) Buffer(number uint64) (Buffer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case number >= uint64(len(p.uses)):
		return Buffer{}, opError("Pool.Buffer", p.mr.ctx.dev.Name(), invalid("buffer %d of %d", number, len(p.uses)))
	case p.uses[number]%2 == 0:
		return Buffer{}, opError("Pool.Buffer", p.mr.ctx.dev.Name(), invalid("buffer %d is in the pool", number))
	}
	return Buffer{p, uint32(number), p.uses[number]}, nil
}

// Close closes the pool and its region, and unblocks every Get. If buffers are out, it changes
// nothing and the error Is [ErrBusy]. It is idempotent and may be called on nil.
func (p *Pool) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	if p.out > 0 {
		defer p.mu.Unlock()
		return opError("Pool.Close", p.mr.ctx.dev.Name(),
			fmt.Errorf("%w: %d of %d buffers are out", ErrBusy, p.out, len(p.uses)))
	}
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
	p.mu.Unlock()
	return opError("Pool.Close", p.mr.ctx.dev.Name(), p.mr.Close())
}

// Number returns the number of the buffer, counted from 0; see [Pool.Buffer].
func (b Buffer) Number() uint64 { return uint64(b.n) }

// Bytes returns the memory of the buffer, or nil for the zero Buffer.
func (b Buffer) Bytes() []byte {
	if b.p == nil {
		return nil
	}
	at := int(b.n) * b.p.step
	return b.p.mr.buf[at : at+b.p.size : at+b.p.size]
}

// Offset returns the offset of the buffer in the pool's region.
func (b Buffer) Offset() int {
	if b.p == nil {
		return 0
	}
	return int(b.n) * b.p.step
}

// SGE returns the element for n bytes at offset off of the buffer. The error Is [ErrBounds] if they
// are not all inside it.
func (b Buffer) SGE(off, n int) (SGE, error) {
	switch {
	case b.p == nil:
		return SGE{}, opError("Buffer.SGE", "", invalid("no buffer"))
	case off < 0 || n < 0 || off > b.p.size || n > b.p.size-off:
		return SGE{}, opError("Buffer.SGE", b.p.mr.ctx.dev.Name(),
			fmt.Errorf("%w: offset %d length %d of %d", ErrBounds, off, n, b.p.size))
	}
	sge, err := b.p.mr.SGE(b.Offset()+off, n)
	return sge, opError("Buffer.SGE", b.p.mr.ctx.dev.Name(), err)
}

func (p *Pool) facts() show.Facts {
	if p == nil || p.mr == nil {
		return show.None("Pool")
	}
	p.mu.Lock()
	out := p.out
	p.mu.Unlock()
	return show.Of("Pool", under(p.mr.ctx, &p.mr.node)...).And(slog.Int("size", p.size), slog.Int("count", len(p.uses)),
		slog.Int("out", out))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (p *Pool) Format(s fmt.State, verb rune) { p.facts().Format(s, verb) }

// String shows the Pool in one line.
func (p *Pool) String() string { return p.facts().String() }

// LogValue implements slog.LogValuer.
func (p *Pool) LogValue() slog.Value { return p.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (p *Pool) MarshalJSON() ([]byte, error) { return p.facts().MarshalJSON() }

func (b Buffer) facts() show.Facts {
	if b.p == nil {
		return show.None("Buffer")
	}
	return show.Of("Buffer", slog.Uint64("number", b.Number()), slog.Int("offset", b.Offset()),
		slog.Int("size", b.p.size))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (b Buffer) Format(s fmt.State, verb rune) { b.facts().Format(s, verb) }

// String shows the Buffer in one line.
func (b Buffer) String() string { return b.facts().String() }

// LogValue implements slog.LogValuer.
func (b Buffer) LogValue() slog.Value { return b.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (b Buffer) MarshalJSON() ([]byte, error) { return b.facts().MarshalJSON() }
