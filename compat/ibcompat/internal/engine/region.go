// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// domain is a protection domain (verbs.ProviderPD).
type domain struct {
	ctx *vcontext
	in  *verbs.PD
}

func (c *vcontext) AllocPD() (verbs.ProviderPD, error) {
	in, err := c.in.AllocPD()
	if err != nil {
		return nil, err
	}
	return &domain{c, in}, nil
}

func (p *domain) Dealloc() error                                 { return p.in.Close() }
func (p *domain) AllocMW(verbs.MWType) (verbs.ProviderMW, error) { return nil, verbs.ErrNotSupported }

// mr is a memory region (verbs.ProviderMR). Its inner keys carry exactly the rights that the
// program asked for, so that whatever else a peer attempts with them is refused as on InfiniBand.
// Receives are opened by keys of their own (open.go). If the inner device demands more rights of a
// Read sink, locally writable memory has a second key for that purpose, which the peer sees in the
// Read.
type mr struct {
	dom    *domain
	in     *verbs.MR
	sink   *verbs.MR // holds the second key; nil if none is needed
	iova   uint64
	access verbs.AccessFlags

	fragile  bool        // Config.GuardMemory
	vanished atomic.Bool // the memory was unmapped; treated as if the region were closed

	mu  sync.RWMutex // held for reading while mem is in use
	mem []byte       // nil when closed
}

// RegMR leaves out the right for atomics if the inner device has no atomics: the agent checks it.
func (p *domain) RegMR(mem []byte, iova uint64, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	below := access
	if !p.ctx.full() {
		below &^= verbs.AccessRemoteAtomic
	}
	in, err := p.in.RegMRIova(mem, iova, below&^verbs.AccessMWBind)
	if err != nil {
		return nil, err
	}
	m := &mr{dom: p, in: in, mem: mem, iova: iova, access: access, fragile: p.ctx.dev.cfg.GuardMemory}
	if access&verbs.AccessLocalWrite != 0 && !p.ctx.localSinks {
		m.sink, err = p.in.RegMRIova(mem, iova,
			verbs.AccessLocalWrite|verbs.AccessRemoteWrite|access&verbs.AccessZeroBased)
		if err != nil {
			return nil, errors.Join(err, in.Close())
		}
	}
	c := p.ctx
	c.keys.Lock()
	c.regions[in.LKey()], c.regions[in.RKey()] = m, m
	c.keys.Unlock()
	return m, nil
}

func (m *mr) LKey() uint32 { return m.in.LKey() }
func (m *mr) RKey() uint32 { return m.in.RKey() }

// Dereg waits for users of the memory.
func (m *mr) Dereg() error {
	lkey, rkey := m.in.LKey(), m.in.RKey()
	m.mu.Lock()
	m.mem = nil
	m.mu.Unlock()
	c := m.dom.ctx
	c.keys.Lock()
	for _, key := range []uint32{lkey, rkey} {
		if c.regions[key] == m {
			delete(c.regions, key)
		}
	}
	c.keys.Unlock()
	return errors.Join(m.sink.Close(), m.in.Close())
}

// find returns the n bytes at addr in a region of the domain, and the region, whose mu is held for
// reading. The error is a *verbs.AccessError if no region has these bytes or the region lacks a
// right.
func (p *domain) find(key uint32, addr uint64, n uint64, need verbs.AccessFlags) ([]byte, *mr, error) {
	p.ctx.keys.RLock()
	m := p.ctx.regions[key]
	p.ctx.keys.RUnlock()
	fault := verbs.AccessBadKey
	if m != nil {
		m.mu.RLock()
		size, off := uint64(len(m.mem)), addr-m.iova
		switch {
		case m.mem == nil || m.vanished.Load():
		case m.dom != p:
			fault = verbs.AccessForeign
		case m.access&need != need:
			fault = verbs.AccessMissingRight
		case addr+n < addr:
			fault = verbs.AccessWraps
		case addr < m.iova || off > size || n > size-off:
			fault = verbs.AccessBounds
		default:
			return m.mem[off:][:n], m, nil
		}
		m.mu.RUnlock()
	}
	return nil, nil, &verbs.AccessError{Fault: fault, Key: key, Addr: addr, Length: n, Right: need}
}

// check verifies that a request may use the elements.
func (p *domain) check(sgl []verbs.SGE, need verbs.AccessFlags) error {
	for i := range sgl {
		s := &sgl[i]
		if s.Length == 0 {
			continue
		}
		_, m, err := p.find(s.LKey, s.Addr, uint64(s.Length), need)
		if err != nil {
			err.(*verbs.AccessError).Element = i
			return err
		}
		m.mu.RUnlock()
	}
	return nil
}

// fetch appends the data of the elements to b, which has room for them.
func (p *domain) fetch(sgl []verbs.SGE, b []byte) ([]byte, error) {
	for i := range sgl {
		s := &sgl[i]
		if s.Length == 0 {
			continue
		}
		mem, m, err := p.find(s.LKey, s.Addr, uint64(s.Length), 0)
		if err != nil {
			err.(*verbs.AccessError).Element = i
			return b, err
		}
		at := len(b)
		b = b[:at+len(mem)]
		if err := m.fetch(b[at:], mem); err != nil {
			err.Element = i
			return b[:at], err
		}
	}
	return b, nil
}
