// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// ErrNoMapping: WriteAt to offsets that the peer has not mapped, or Map with a peer that has no
// place for one more.
var ErrNoMapping = errors.New("no mapping")

// Mapping is memory of this side to which the peer can write by offsets, from its [Conn.WriteAt] or
// riowrite of librdmacm. It is at an offset that this side has chosen.
type Mapping struct {
	c     *Conn
	mr    *verbs.MR
	index int // in the peer's area
}

// MR returns the memory. The peer writes to it at any time, and its program decides when: what
// follows a WriteAt on the stream says that it is complete. A word of it can be watched by
// [verbs.MR.Word]. The region belongs to the Mapping.
func (m *Mapping) MR() *verbs.MR { return m.mr }

// Close ends the mapping and frees its memory. The peer is not told: if it writes there later, the
// connection fails. Close of the connection does it too. It is idempotent.
func (m *Mapping) Close() error {
	if m == nil {
		return nil
	}
	err := m.mr.Close()
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.c.own[m.index] == m {
		m.c.own[m.index] = nil
	}
	return err
}

// Map lets the peer write to n bytes of new memory, which it finds at offset (riomap). It waits
// until there is room in the stream to tell the peer, which may use it as soon as it has read what
// comes behind on the stream. The peer has said how many mappings it takes (Config.Mappings, or
// RDMA_IOMAPSIZE of librdmacm); with one more the error is [ErrNoMapping]. With rsockets of
// librdmacm each Map takes one message from its queue for good, because they do not give it back.
func (c *Conn) Map(n int, offset int64) (*Mapping, error) {
	m, err := c.makeMapping(n, offset)
	return m, opError("map", c.local, c.remote, err)
}

func (c *Conn) makeMapping(n int, offset int64) (*Mapping, error) {
	if n < 1 || offset < 0 || int64(n) > math.MaxUint32 || offset > math.MaxInt64-int64(n) {
		return nil, invalid("%d bytes at offset %d", n, offset)
	}
	if err := c.enter(&c.wr); err != nil {
		return nil, err
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, _, err := c.space(); err != nil {
		return nil, err
	}
	index := slices.Index(c.own, nil)
	switch {
	case index >= 0:
	case len(c.own) == c.places:
		return nil, fmt.Errorf("%w: the peer takes %d", ErrNoMapping, c.places)
	default:
		index = len(c.own)
		c.own = append(c.own, nil)
	}
	mr, err := c.res.pd.AllocMR(n, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	m := &Mapping{c: c, mr: mr, index: index}
	c.own[index] = m
	c.sendMapping(index, uint64(offset), entry{mr.Addr(), mr.RKey(), uint32(n)})
	return m, nil
}

// sendMapping writes an entry to the peer's area, and tells of it. There is room for it in the
// stream. The caller holds mu.
func (c *Conn) sendMapping(index int, offset uint64, e entry) {
	r := c.res
	slot := r.slotsAt + c.queue.next()*slotLen
	c.order.PutUint64(r.local.Bytes()[slot:], offset)
	e.put(r.local.Bytes()[slot+8:], c.order)
	from := verbs.SGE{Addr: r.local.Addr() + uint64(slot), Length: mappingLen, LKey: r.local.LKey()}
	to := entry{c.table.addr + uint64(c.table.length)*entryLen + uint64(index)*mappingLen, c.table.key, mappingLen}
	c.out.sent++
	c.post(newMessage(opMapping, uint32(index)), from, to, 0, false)
}

// unmap closes all mappings of this side.
func (c *Conn) unmap() {
	c.mu.Lock()
	own := slices.Clone(c.own)
	c.mu.Unlock()
	for _, m := range own {
		_ = m.Close()
	}
}

// mapped is memory of the peer that it has mapped.
type mapped struct {
	offset uint64
	entry  entry // of length 0: none
}

// takeMapping takes the mapping that the peer has written to place i.
func (c *Conn) takeMapping(i uint32) error {
	if err := c.in.mapping(i); err != nil {
		return err
	}
	b := c.res.remote.Bytes()[tableEntries*entryLen+int(i)*mappingLen:]
	m := mapped{binary.LittleEndian.Uint64(b),
		entry{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]),
			binary.LittleEndian.Uint32(b[20:])}}
	if err := m.entry.check(); err != nil {
		return err
	}
	if m.offset > math.MaxUint64-uint64(m.entry.length) {
		return violation(BadMemory, m.offset, math.MaxUint64-uint64(m.entry.length))
	}
	c.theirs[i] = m
	return nil
}

// at returns the memory at an offset, in the first mapping that has it. The caller holds mu.
func (c *Conn) at(offset uint64) (entry, error) {
	for _, m := range c.theirs {
		if skip := offset - m.offset; offset >= m.offset && skip < uint64(m.entry.length) {
			return entry{m.entry.addr + skip, m.entry.key, m.entry.length - uint32(skip)}, nil
		}
	}
	return entry{}, fmt.Errorf("%w: nothing is mapped at offset %d", ErrNoMapping, offset)
}

// WriteAt writes p to memory that the peer has mapped, from offset on (riowrite). When it returns,
// p may be used again, and all of it has been handed to the device, unless there is an error. The
// peer's program learns nothing of it; when it has read what a later Write sends, p is in its
// memory. WriteAt waits for room as Write does. The error is [ErrNoMapping] at the first offset
// that is not mapped. The peer's mappings are known when a Read has returned what came behind them.
func (c *Conn) WriteAt(p []byte, offset int64) (int, error) {
	n, err := c.writeAt(p, offset)
	return n, opError("write", c.local, c.remote, err)
}

func (c *Conn) writeAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 || int64(len(p)) > math.MaxInt64-offset {
		return 0, invalid("%d bytes at offset %d", len(p), offset)
	}
	if err := c.enter(&c.wr); err != nil {
		return 0, err
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		return 0, c.writeError()
	}
	for n < len(p) {
		at, room, err := c.space()
		if err != nil {
			return n, err
		}
		to, err := c.at(uint64(offset) + uint64(n))
		if err != nil {
			return n, err
		}
		k := int(min(uint64(room), uint64(len(p)-n), uint64(to.length)))
		if err := c.fill(at, p[n:n+k]); err != nil {
			return n, err
		}
		c.out.hold(k)
		c.postWrite(c.filled(at, k), to)
		n += k
	}
	return n, nil
}

// postWrite writes from, bytes of the send buffer, to memory of the peer, of which its program
// learns nothing. The caller holds mu.
func (c *Conn) postWrite(from verbs.SGE, to entry) {
	if c.down {
		return
	}
	c.sendSGEs[0] = from
	wr := &c.sendWRs[0]
	*wr = verbs.SendWR{ID: sendID, Opcode: verbs.WRRDMAWrite, SGL: c.sendSGEs[:1], RemoteAddr: to.addr, RKey: to.key}
	if c.queue.push(1, int(from.Length), c.out.size, false) {
		wr.Flags = verbs.SendSignaled
	}
	if int(from.Length) <= c.res.cfg.Inline {
		wr.Flags |= verbs.SendInline
	}
	if _, err := c.res.qp.PostSend(c.sendWRs[:1]); err != nil {
		c.fail(err)
	}
}
