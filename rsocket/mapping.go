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

// ErrNoMapping reports that WriteAt wrote to an offset that the peer has not mapped, or that the
// peer has no room for another Map.
var ErrNoMapping = errors.New("no mapping")

// Mapping is memory of this side that the peer can write to with its [Conn.WriteAt], or riowrite of
// librdmacm, at an offset that this side chose.
type Mapping struct {
	c     *Conn
	mr    *verbs.MR
	index int // in the peer's area
}

// MR returns the memory. The peer may write to it at any time; the peer's program signals that its
// writes are complete by sending something on the stream after WriteAt. [verbs.MR.Word] can watch
// one word of it. The region belongs to the Mapping.
func (m *Mapping) MR() *verbs.MR { return m.mr }

// Close removes the mapping and frees its memory. The peer is not notified: if it writes there
// later, the connection fails. Closing the connection closes its mappings too. Close is idempotent.
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

// Map allocates n bytes of memory that the peer can write to at offset (riomap). It waits for room
// in the stream to notify the peer, which may use the mapping once it has read the data that
// follows on the stream. The peer limits the number of mappings (Config.Mappings, or RDMA_IOMAPSIZE
// of librdmacm); beyond it, the error is [ErrNoMapping]. If the peer uses librdmacm's rsockets,
// each Map permanently consumes one message of its queue, because they never return that credit.
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

// sendMapping writes an entry to the peer's area and announces it. The stream must have room for
// it. The caller holds mu.
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

// mapped is memory that the peer has mapped.
type mapped struct {
	offset uint64
	entry  entry // length 0 means none
}

// takeMapping reads the mapping that the peer wrote at index i.
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

// at returns the memory at an offset, in the first mapping that contains it. The caller holds mu.
func (c *Conn) at(offset uint64) (entry, error) {
	for _, m := range c.theirs {
		if skip := offset - m.offset; offset >= m.offset && skip < uint64(m.entry.length) {
			return entry{m.entry.addr + skip, m.entry.key, m.entry.length - uint32(skip)}, nil
		}
	}
	return entry{}, fmt.Errorf("%w: nothing is mapped at offset %d", ErrNoMapping, offset)
}

// WriteAt writes p to memory that the peer has mapped, starting at offset (riowrite). When it
// returns, the caller may reuse p. Unless there is an error, all of p has been handed to the
// device. The peer's program is not notified; once it has read what a later Write sends, p is in
// its memory. WriteAt waits for room as Write does. At the first offset that is not mapped, it
// returns [ErrNoMapping]. A mapping of the peer is known once a Read has returned the data that
// followed it.
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

// postWrite writes from, bytes of the send buffer, to the peer's memory without notifying its
// program. The caller holds mu.
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
