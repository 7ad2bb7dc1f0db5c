// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/goverbs/goverbs/internal/show"
)

// Pool has buffers of one size in one region. All methods may be called concurrently, and none but
// AllocPool allocates.
//
// A buffer is in the pool or out. Get takes it out, and Put, by whoever has it then, puts it back.
type Pool struct {
	mr    *MR
	size  int
	step  int         // from one buffer to the next
	free  chan uint32 // the numbers of the buffers in the pool
	ended chan struct{}

	mu     sync.Mutex // guards what follows; a leaf but for free, which always has room
	closed bool
	out    int
	uses   []uint32 // of each buffer, how often it has been taken or put; odd = it is out
}

// poolAlign is what the offset of every buffer is a multiple of: no two buffers share a cache line,
// and each begins with a word for atomics.
const poolAlign = 64

// Buffer is a buffer of a [Pool] that is out, from Get to Put. It is a value of a few words, which
// can be copied; whoever puts one of the copies back puts back all. The zero Buffer is none.
type Buffer struct {
	p    *Pool
	n    uint32
	uses uint32
}

// AllocPool allocates count buffers of size bytes, zeroed, in one region that it registers as
// [PD.AllocMR] does. The offset of each buffer in the region is a multiple of 64. The caller closes
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

// MR returns the region of the buffers. Only Close of the pool may close it.
func (p *Pool) MR() *MR { return p.mr }

// Size returns the size of each buffer in bytes.
func (p *Pool) Size() int { return p.size }

// Count returns the number of buffers, in the pool and out.
func (p *Pool) Count() int { return len(p.uses) }

// Get takes a buffer out, and waits for one if all are out. Its memory has what it had when it was
// put back. The error Is ctx.Err() when ctx is done and [ErrClosed] when the pool is closed.
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

// TryGet takes a buffer out. It reports false if all are out, or the pool is closed.
func (p *Pool) TryGet() (Buffer, bool) {
	select {
	case n := <-p.free:
		return p.take(n)
	default:
		return Buffer{}, false
	}
}

// take takes out a buffer whose number has been taken from free.
func (p *Pool) take(n uint32) (Buffer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.free <- n // for the next Get, which is to fail too
		return Buffer{}, false
	}
	p.out++
	p.uses[n]++
	return Buffer{p, n, p.uses[n]}, true
}

// Put puts a buffer back. No request that uses it may be in progress. The error Is [ErrInvalid] if
// the buffer is of another pool, or has been put back.
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

// Buffer returns the buffer with a number, which must be out: a request can have the number as its
// ID, and its completion leads to the buffer. The error Is [ErrInvalid] if there is no such buffer,
// or it is in the pool.
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

// Close closes the pool and its region, and ends every Get. The error Is [ErrBusy] if buffers are
// out; then nothing has changed. It is idempotent and may be called on nil.
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

// Number returns the number of the buffer, from 0; see [Pool.Buffer].
func (b Buffer) Number() uint64 { return uint64(b.n) }

// Bytes returns the memory of the buffer, nil for the zero Buffer.
func (b Buffer) Bytes() []byte {
	if b.p == nil {
		return nil
	}
	at := int(b.n) * b.p.step
	return b.p.mr.buf[at : at+b.p.size : at+b.p.size]
}

// Offset returns where the buffer begins in the region of the pool.
func (b Buffer) Offset() int {
	if b.p == nil {
		return 0
	}
	return int(b.n) * b.p.step
}

// SGE returns the element for n bytes of the buffer from offset off. The error Is [ErrBounds] if
// they are not all inside it.
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
