// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// MW is a memory window: a separate key for part of a region, bound and invalidated by work
// requests. All methods may be called concurrently.
type MW struct {
	node lifetime.Node
	pd   *PD
	p    ProviderMW
	typ  MWType
	rkey atomic.Uint32
}

// AllocMW allocates a window (ibv_alloc_mw(3)). It gives no access until it is bound: type 1 by
// [QP.BindMW], type 2 by a WRBindMW.
func (pd *PD) AllocMW(t MWType) (*MW, error) {
	if err := pd.enter("AllocMW"); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	if t != MWType1 && t != MWType2 {
		return nil, opError("AllocMW", pd.ctx.dev.Name(), invalid("window type %d", t))
	}
	p, err := pd.p.AllocMW(t)
	if err != nil {
		return nil, opError("AllocMW", pd.ctx.dev.Name(), err)
	}
	w := &MW{pd: pd, p: p, typ: t}
	w.rkey.Store(p.RKey())
	if err := w.node.Init("MW", w.Close, &pd.node); err != nil {
		return nil, opError("AllocMW", pd.ctx.dev.Name(), errors.Join(err, p.Dealloc()))
	}
	return w, nil
}

// Type returns the type of the window.
func (w *MW) Type() MWType { return w.typ }

// RKey returns the key of the last bind posted or, before any bind, the key of the allocation. When
// the QP of a bound type 2 window is closed, the device may have to reallocate the window, which
// then has a different key that gives no access.
func (w *MW) RKey() uint32 {
	k := w.rkey.Load()
	if w.typ == MWType2 {
		k = w.p.RKey()&^0xff | k&0xff
	}
	return k
}

// NextRKey returns a key for the next bind: the current key with its low 8 bits, which belong to
// the user, incremented (ibv_inc_rkey(3)).
func (w *MW) NextRKey() uint32 {
	k := w.RKey()
	return k&^0xff | (k+1)&0xff
}

// Provider returns the provider's MW object.
func (w *MW) Provider() ProviderMW { return w.p }

// Close frees the window (ibv_dealloc_mw(3)); its key becomes invalid. It is idempotent and may be
// called on nil.
func (w *MW) Close() error {
	if w == nil {
		return nil
	}
	first, err := w.node.BeginClose()
	if !first || err != nil {
		return opError("MW.Close", w.pd.ctx.dev.Name(), err)
	}
	w.node.Drain(0)
	err = w.p.Dealloc()
	w.node.End()
	return opError("MW.Close", w.pd.ctx.dev.Name(), err)
}

// BindMW queues the bind of a type 1 window (ibv_bind_mw(3)) with wr_id id, in order with the send
// requests, and completes like one. When BindMW returns, [MW.RKey] returns the new key; the key
// gives access once the request completes. A length of 0 removes all access. Type 2 windows are
// bound by a WRBindMW.
func (q *QP) BindMW(id uint64, flags SendFlags, b MWBind) error {
	const op = "QP.BindMW"
	if !q.node.Enter() {
		return q.opError(op, ErrClosed)
	}
	defer q.node.Exit()
	binder, ok := Ability[ProviderMWBinder](q.p)
	if !ok || !opsOf(q.typ).Has(OpBindMW) {
		return q.opError(op, fmt.Errorf("%w: windows of %v on a %v QP", ErrNotSupported, MWType1, q.typ))
	}
	if flags&^(SendFence|SendSignaled) != 0 {
		return q.opError(op, invalid("send flags %v", flags))
	}
	if err := q.checkWindow(&b, MWType1); err != nil {
		return q.opError(op, err)
	}
	key, err := binder.BindMW(id, flags, &b)
	if err != nil {
		return q.opError(op, err)
	}
	b.MW.rkey.Store(key)
	return nil
}

// rekey updates the keys of windows after their binds are posted.
func rekey(wrs []SendWR) {
	for i := range wrs {
		if b := wrs[i].Bind; b != nil && wrs[i].Opcode == WRBindMW {
			b.MW.rkey.Store(wrs[i].RKey)
		}
	}
}
