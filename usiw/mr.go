// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// mr is a memory region (verbs.ProviderMR).
type mr struct {
	dev *device
	r   *region
}

func (p *domain) RegMR(mem []byte, iova uint64, access verbs.AccessFlags) (verbs.ProviderMR, error) {
	if p.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	if access&verbs.AccessOnDemand != 0 {
		return nil, fmt.Errorf("%w: memory that is not pinned", verbs.ErrNotSupported)
	}
	if err := p.dev.mrs.take(); err != nil {
		return nil, err
	}
	r := &region{pd: p, mem: mem, base: iova, access: access, fragile: p.dev.cfg.GuardMemory}
	if _, err := p.dev.stags.reserve(r); err != nil {
		p.dev.mrs.give()
		return nil, err
	}
	return &mr{dev: p.dev, r: r}, nil
}

func (m *mr) LKey() uint32 { return m.r.stag }

func (m *mr) RKey() uint32 { return m.r.stag }

func (m *mr) Dereg() error {
	m.dev.stags.release(m.r.stag >> 8)
	m.dev.withdraw(m.r)
	m.dev.mrs.give()
	return nil
}

// withdraw waits until no access to r is in progress. The key has already been removed from the
// table, so no new access begins. Only data queued for a slow peer can delay it. After
// DeregTimeout, withdraw ends the connections of such peers.
func (d *device) withdraw(r *region) {
	r.guard.Shut()
	for patience := d.cfg.DeregTimeout; !r.guard.Drain(patience); patience = time.Millisecond {
		for _, c := range d.connections() {
			if c.refersTo(r) {
				c.fail(fmt.Errorf("memory of key %#x was deregistered while it waited to be sent: %w", r.stag,
					verbs.ErrClosed), &termination{fault: faultLocal})
			}
		}
	}
}

// mw is a memory window (verbs.ProviderMW). A type 2 window belongs to the QP through which it was
// bound, and can be bound again once invalidated. A type 1 window belongs to its PD and can be
// bound again at any time.
type mw struct {
	dev  *device
	pd   *domain
	typ  verbs.MWType
	stag uint32        // as allocated; the index does not change
	key  atomic.Uint32 // type 1 only: the last key that nextKey returned
	gone bool          // Dealloc was called; guarded by the key table's mu
}

func (p *domain) AllocMW(t verbs.MWType) (verbs.ProviderMW, error) {
	if !p.dev.ops.Has(verbs.OpBindMW) {
		return nil, fmt.Errorf("%w: window type %v", verbs.ErrNotSupported, t)
	}
	if p.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	if err := p.dev.mws.take(); err != nil {
		return nil, err
	}
	w := &mw{dev: p.dev, pd: p, typ: t}
	var err error
	if w.stag, err = p.dev.stags.reserve(nil); err != nil {
		p.dev.mws.give()
		return nil, err
	}
	w.key.Store(w.stag)
	return w, nil
}

func (w *mw) RKey() uint32 { return w.stag }

func (w *mw) Dealloc() error {
	if r := w.dev.stags.retire(w); r != nil {
		w.dev.withdraw(r)
	}
	w.dev.mws.give()
	return nil
}

// binding is a queued WRBindMW, or a queued bind of a type 1 window.
type binding struct {
	mw     *mw
	mr     *mr
	addr   uint64
	length uint64
	access verbs.AccessFlags
	rkey   uint32
}

// newBinding returns the binding for b.
func newBinding(b *verbs.MWBind, rkey uint32) (*binding, error) {
	w, err := verbs.Own[*mw](b.MW.Provider())
	if err != nil {
		return nil, err
	}
	m, err := verbs.Own[*mr](b.MR.Provider())
	if err != nil {
		return nil, err
	}
	return &binding{mw: w, mr: m, addr: b.Addr, length: b.Length, access: b.Access, rkey: rkey}, nil
}

// Reasons why a window cannot be bound.
var (
	errBindRegion = errors.New("the region of the window has been closed since the post")
	errBindWindow = errors.New("the window has been closed since the post")
	errBindBound  = errors.New("the window is of type 2 and bound: it must be invalidated first")
)

// bind binds the window to a range of a region, through q; length 0 unbinds it. It fails if a type
// 2 window is already bound, or if the window or the region was closed after the request was
// posted.
func (b *binding) bind(q *qp) error {
	if !b.mr.r.guard.Enter() {
		return errBindRegion
	}
	defer b.mr.r.guard.Exit()
	off := b.addr - b.mr.r.base
	r := &region{stag: b.rkey, pd: q.pd, mem: b.mr.r.mem[off : off+b.length], base: b.addr, access: b.access,
		parent: b.mr.r, qp: q, fragile: b.mr.r.fragile}
	if b.access&verbs.AccessZeroBased != 0 {
		r.base = 0
	}
	if b.mw.typ == verbs.MWType1 {
		r.qp = nil
	}
	return b.mw.dev.stags.bind(b.mw, r)
}

// shut waits until no peer accesses memory through a window whose key has been removed from the
// table. Accesses in progress are copies, which finish soon; Read data that are already copied and
// wait to be sent count as read.
func (r *region) shut() {
	r.guard.Shut()
	r.guard.Drain(0)
}

// bind stores r in the window's slot.
func (t *stagTable) bind(w *mw, r *region) error {
	old, err := t.replace(w, r)
	if old != nil {
		old.shut()
	}
	return err
}

// replace stores r in the window's slot and returns the region that it replaces, or nil if the
// window was not bound.
func (t *stagTable) replace(w *mw, r *region) (old *region, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index := w.stag >> 8
	old = t.slots[index]
	switch {
	case w.gone:
		return nil, errBindWindow
	case old != nil && w.typ == verbs.MWType2:
		return nil, errBindBound
	}
	t.slots[index] = r
	if len(r.mem) == 0 {
		t.slots[index] = nil
	}
	return old, nil
}

// retire frees the window's slot and returns the region in it, or nil if the window was not bound.
func (t *stagTable) retire(w *mw) (old *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.gone = true
	old = t.slots[w.stag>>8]
	delete(t.slots, w.stag>>8)
	return old
}

// invalidate invalidates the key of a window bound to q. Keys of regions are never invalidated,
// because all QPs of the domain share them (RFC 5040 section 8.1.1, requirement 7).
func (d *device) invalidate(q *qp, stag uint32) reject {
	r := d.stags.lookup(stag)
	switch {
	case r == nil:
		return rejectSTag
	case r.pd != q.pd:
		return rejectAssociation
	case r.parent == nil || r.qp != q:
		return rejectRights
	}
	if d.stags.unbind(r) {
		r.shut()
	}
	return accepted
}

// unbind empties the slot of a bound window; it reports false if the slot no longer holds r.
func (t *stagTable) unbind(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[r.stag>>8] != r {
		return false
	}
	t.slots[r.stag>>8] = nil
	return true
}
