// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// mr is a memory region (verbs.ProviderMR, ProviderMRReregisterer). Its context finds it by lkey in
// order to store the original value of a composed atomic in it.
type mr struct {
	forward.MR
	ctx *vcontext

	mu     sync.RWMutex // guards the following; held for reading while mem is written
	pd     *domain
	mem    []byte // nil if not memory of the process, or closed
	iova   uint64
	access verbs.AccessFlags
}

func (p *domain) RegMR(mem []byte, iova uint64, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.In.RegMRIova(mem, iova, access)
	if err != nil {
		return nil, err
	}
	m := &mr{MR: forward.MR{In: in}, ctx: p.ctx, pd: p, mem: mem, iova: iova, access: access}
	m.list(in.LKey())
	return m, nil
}

func (p *domain) RegDmabufMR(offset, length, iova uint64, fd int, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	in, err := p.In.RegDmabufMR(offset, length, iova, fd, access)
	if err != nil {
		return nil, err
	}
	m := &mr{MR: forward.MR{In: in}, ctx: p.ctx, pd: p, iova: iova, access: access}
	m.list(in.LKey())
	return m, nil
}

func (m *mr) list(key uint32) {
	m.ctx.keys.Lock()
	defer m.ctx.keys.Unlock()
	m.ctx.regions[key] = m
}

// unlist removes a key, unless another region has it by now.
func (m *mr) unlist(key uint32) {
	m.ctx.keys.Lock()
	defer m.ctx.keys.Unlock()
	if m.ctx.regions[key] == m {
		delete(m.ctx.regions, key)
	}
}

// Dereg waits for writers of the memory. If the device refuses, the region remains unchanged.
func (m *mr) Dereg() error {
	key := m.LKey()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.MR.Dereg(); err != nil {
		return err
	}
	m.mem = nil
	m.unlist(key)
	return nil
}

func (m *mr) Rereg(flags verbs.ReregFlags, pd verbs.ProviderPD, mem []byte, iova uint64,
	access verbs.AccessFlags) error {
	to, err := verbs.Own[*domain](pd)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.LKey()
	if err := m.MR.Rereg(flags, pd, mem, iova, access); err != nil {
		if errors.Is(err, verbs.ErrMRLost) {
			m.mem = nil
			m.unlist(before)
		}
		return err
	}
	if m.mem != nil || flags&verbs.ReregTranslation != 0 {
		m.mem, m.iova = mem, iova
	}
	m.pd, m.access = to, access
	m.unlist(before)
	m.list(m.LKey())
	return nil
}

// writable returns the memory of an element and the lock that keeps it valid, held for reading. The
// memory must be in a region of the PD that is locally writable; otherwise both results are nil.
func (p *domain) writable(s verbs.SGE) ([]byte, *sync.RWMutex) {
	p.ctx.keys.RLock()
	m := p.ctx.regions[s.LKey]
	p.ctx.keys.RUnlock()
	if m == nil {
		return nil, nil
	}
	m.mu.RLock()
	n, off := uint64(len(m.mem)), s.Addr-m.iova
	if m.pd != p || m.access&verbs.AccessLocalWrite == 0 || s.Addr < m.iova || off > n || uint64(s.Length) > n-off {
		m.mu.RUnlock()
		return nil, nil
	}
	return m.mem[off:][:s.Length], &m.mu
}

// foreign reports whether an element is in memory outside the process, such as a dma-buf.
func (p *domain) foreign(s verbs.SGE) bool {
	p.ctx.keys.RLock()
	m := p.ctx.regions[s.LKey]
	p.ctx.keys.RUnlock()
	if m == nil {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mem == nil
}
