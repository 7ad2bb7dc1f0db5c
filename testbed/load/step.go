// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Steps returns the names of the operations that Step chooses from.
func Steps() []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

var steps = []struct {
	name  string
	needs verbs.Op
	run   func(c *Conn) error
}{
	{"echo", verbs.OpSend, (*Conn).echo},
	{"write-read", verbs.OpRead, (*Conn).writeRead},
	{"list", verbs.OpWrite, (*Conn).list},
	{"reads", verbs.OpRead, (*Conn).reads},
	{"region", verbs.OpRead, (*Conn).region},
	{"pull", verbs.OpSend, func(c *Conn) error { return c.pull(c.mem.RKey()) }},
	{"window", verbs.OpBindMW, (*Conn).window},
	{"fetch-add", verbs.OpFetchAdd, (*Conn).fetchAdd},
	{"cmp-swap", verbs.OpCmpSwap, (*Conn).cmpSwap},
	{"write-imm", verbs.OpWriteImm, (*Conn).writeImm},
}

// Step executes one operation, chosen at random from those that the device supports, and checks the
// outcome.
func (c *Conn) Step() error {
	for {
		s := &steps[c.rng.IntN(len(steps))]
		if c.Supports(s.needs) {
			return c.run(s.name, s.run)
		}
	}
}

// EachStep executes every operation that the device supports once.
func (c *Conn) EachStep() error {
	for _, s := range steps {
		if !c.Supports(s.needs) {
			continue
		}
		if err := c.run(s.name, s.run); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) run(name string, f func(*Conn) error) error {
	if err := f(c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.counts.Add(name, 1)
	return nil
}

// fill fills memory with random bytes.
func (c *Conn) fill(b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, c.rng.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(c.rng.Uint32())
	}
}

// same requires that got equals want.
func same(want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%w: byte %d of %d is %#x, not %#x", errTraffic, i, len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%w: %d bytes, not %d", errTraffic, len(got), len(want))
}

// slot returns a slot to send from, answer one to receive into.
func (c *Conn) slot(i int) (off int, b []byte) {
	off = regionLen + i*slotLen
	return off, c.mem.Bytes()[off : off+slotLen]
}

func (c *Conn) answer(i int) []byte {
	_, b := c.slot(slots + i)
	return b
}

// echo sends messages and gets them back.
func (c *Conn) echo() error {
	n := 1 + c.rng.IntN(4)
	var sizes [4]int
	var wrs []verbs.SendWR
	for i := range n {
		if err := c.recv(i); err != nil {
			return err
		}
	}
	for i := range n {
		sizes[i] = headLen + c.rng.IntN(slotLen-headLen+1)
		off, b := c.slot(i)
		c.fill(b[:sizes[i]])
		clear(b[:headLen])
		b[0] = kindEcho
		wrs = append(wrs, verbs.SendWR{ID: c.id(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGL: c.sge(off, sizes[i])})
	}
	if err := errors.Join(c.post(wrs...), c.Collect()); err != nil {
		return err
	}
	for i := range n {
		_, b := c.slot(i)
		if err := same(b[headLen:sizes[i]], c.answer(i)[headLen:sizes[i]]); err != nil {
			return err
		}
	}
	return nil
}

// part chooses bytes of the server's region, excluding its word; occasionally a few of them across
// a page boundary.
func (c *Conn) part() (off, n int) {
	const page = 4096
	if c.rng.IntN(4) == 0 {
		first, second := 1+c.rng.IntN(24), 1+c.rng.IntN(24)
		return page*(1+c.rng.IntN(regionLen/page-1)) - first, first + second
	}
	off = wordLen + c.rng.IntN(regionLen-wordLen)
	return off, 1 + c.rng.IntN(min(regionLen-off, regionLen/2))
}

// write returns a Write of random bytes and updates the shadow.
func (c *Conn) write(from, to, n int) verbs.SendWR {
	b := c.mem.Bytes()[from : from+n]
	c.fill(b)
	copy(c.shadow[to:], b)
	return verbs.SendWR{ID: c.id(), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: c.sge(from, n),
		RemoteAddr: c.remote.addr + uint64(to), RKey: c.remote.rkey}
}

func (c *Conn) read(sgl []verbs.SGE, from int) verbs.SendWR {
	return verbs.SendWR{ID: c.id(), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: sgl,
		RemoteAddr: c.remote.addr + uint64(from), RKey: c.remote.rkey}
}

// writeRead writes, and reads the data back in the same list.
func (c *Conn) writeRead() error {
	off, n := c.part()
	put := c.write(0, off, n)
	get := c.read(c.sge(regionLen/2, n), off)
	if err := errors.Join(c.post(put, get), c.Collect()); err != nil {
		return err
	}
	return same(c.shadow[off:off+n], c.mem.Bytes()[regionLen/2:regionLen/2+n])
}

// list posts several small Writes as one list and reads everything they touch.
func (c *Conn) list() error {
	n := 2 + c.rng.IntN(10)
	var wrs []verbs.SendWR
	for i := range n {
		wrs = append(wrs, c.write(i*256, wordLen+c.rng.IntN(4096-256), 1+c.rng.IntN(256)))
	}
	wrs = append(wrs, c.read(c.sge(regionLen/2, 4096), wordLen))
	if err := errors.Join(c.post(wrs...), c.Collect()); err != nil {
		return err
	}
	return same(c.shadow[wordLen:wordLen+4096], c.mem.Bytes()[regionLen/2:regionLen/2+4096])
}

// reads posts more Reads at once than may be in progress, followed by a fenced Write of what they
// read.
func (c *Conn) reads() error {
	const size = 256
	n := 2 + c.rng.IntN(10)
	from := wordLen + c.rng.IntN(regionLen/2)
	var wrs []verbs.SendWR
	for i := range n {
		wrs = append(wrs, c.read(c.sge(regionLen/2+i*size, size), from+i*size))
	}
	to := regionLen - n*size
	back := verbs.SendWR{ID: c.id(), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled | verbs.SendFence,
		SGL: c.sge(regionLen/2, n*size), RemoteAddr: c.remote.addr + uint64(to), RKey: c.remote.rkey}
	wrs = append(wrs, back, c.read(c.sge(0, n*size), to))
	copy(c.shadow[to:], c.shadow[from:from+n*size])
	if err := errors.Join(c.post(wrs...), c.Collect()); err != nil {
		return err
	}
	return same(c.shadow[to:to+n*size], c.mem.Bytes()[:n*size])
}

// region registers memory, either Go memory or not, reads into it, and deregisters it.
func (c *Conn) region() (err error) {
	off, n := c.part()
	var mr *verbs.MR
	if c.rng.IntN(2) == 0 {
		mr, err = c.pd.AllocMR(n, anyAccess)
	} else {
		mr, err = c.pd.RegMR(make([]byte, n), anyAccess)
	}
	if err != nil {
		return err
	}
	get := c.read([]verbs.SGE{{Addr: mr.Addr(), Length: uint32(n), LKey: mr.LKey()}}, off)
	err = errors.Join(c.post(get), c.Collect())
	if err == nil {
		err = same(c.shadow[off:off+n], mr.Bytes()[:n])
	}
	return errors.Join(err, mr.Close())
}

// pull makes the server read from this side's memory with a key.
func (c *Conn) pull(rkey uint32) error {
	n := 1 + c.rng.IntN(slotLen-headLen)
	src := c.mem.Bytes()[:n]
	c.fill(src)
	off, b := c.slot(0)
	clear(b[:headLen])
	b[0] = kindPull
	binary.LittleEndian.PutUint64(b[2:], c.mem.Addr())
	binary.LittleEndian.PutUint32(b[10:], rkey)
	binary.LittleEndian.PutUint16(b[14:], uint16(n))
	if err := c.recv(0); err != nil {
		return err
	}
	send := verbs.SendWR{ID: c.id(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: c.sge(off, headLen)}
	if err := errors.Join(c.post(send), c.Collect()); err != nil {
		return err
	}
	return same(src, c.answer(0)[headLen:headLen+n])
}

// window binds a window for one pull and invalidates it.
func (c *Conn) window() error {
	mw, err := c.pd.AllocMW(verbs.MWType2)
	if err != nil {
		return err
	}
	err = c.through(mw)
	return errors.Join(err, mw.Close())
}

func (c *Conn) through(mw *verbs.MW) error {
	rkey := mw.NextRKey()
	bind := verbs.SendWR{ID: c.id(), Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, RKey: rkey,
		Bind: &verbs.MWBind{MW: mw, MR: c.mem, Addr: c.mem.Addr(), Length: slotLen, Access: verbs.AccessRemoteRead}}
	if err := errors.Join(c.post(bind), c.Collect()); err != nil {
		return err
	}
	if err := c.pull(rkey); err != nil {
		return err
	}
	inv := verbs.SendWR{ID: c.id(), Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: rkey}
	return errors.Join(c.post(inv), c.Collect())
}

// atomic executes an atomic on the server's word, which only this client changes.
func (c *Conn) atomic(wr verbs.SendWR, after uint64) error {
	wr.ID, wr.Flags, wr.SGL, wr.RemoteAddr, wr.RKey = c.id(), verbs.SendSignaled, c.sge(0, wordLen), c.remote.addr,
		c.remote.rkey
	if err := errors.Join(c.post(wr), c.Collect()); err != nil {
		return err
	}
	if was := binary.NativeEndian.Uint64(c.mem.Bytes()); was != c.word {
		return fmt.Errorf("%w: the word was %#x, not %#x", errTraffic, was, c.word)
	}
	c.word = after
	return nil
}

func (c *Conn) fetchAdd() error {
	add := c.rng.Uint64()
	return c.atomic(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: add}, c.word+add)
}

func (c *Conn) cmpSwap() error {
	compare, swap := c.word, c.rng.Uint64()
	after := swap
	if c.rng.IntN(3) == 0 {
		compare, after = compare+1, c.word
	}
	return c.atomic(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: compare, Swap: swap}, after)
}

// writeImm writes with an immediate, which the server sends back.
func (c *Conn) writeImm() error {
	off, n := c.part()
	if err := c.recv(0); err != nil {
		return err
	}
	put := c.write(0, off, n)
	put.Opcode, put.Imm = verbs.WRRDMAWriteWithImm, c.rng.Uint32()
	get := c.read(c.sge(regionLen/2, n), off)
	if err := errors.Join(c.post(put, get), c.Collect()); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint32(c.answer(0)[4:]); got != put.Imm {
		return fmt.Errorf("%w: the immediate %#x came back as %#x", errTraffic, put.Imm, got)
	}
	return same(c.shadow[off:off+n], c.mem.Bytes()[regionLen/2:regionLen/2+n])
}
