// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/siw/ddp"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// region is memory that a key names: a memory region, or what a window is bound to. It does not change; a rebind makes a
// new one. Its guard counts the accesses in progress, so that deregistration can wait for them.
type region struct {
	guard  lifetime.Guard
	stag   uint32
	pd     *domain
	mem    []byte
	base   uint64 // the address of mem[0]
	access verbs.AccessFlags

	// Of a window: the region it is bound to, and the one QP that may use it.
	parent *region
	qp     *qp
}

// enter keeps the memory in place until exit; false means that the key has been withdrawn.
func (r *region) enter() bool {
	if !r.guard.Enter() {
		return false
	}
	if r.parent != nil && !r.parent.guard.Enter() {
		r.guard.Exit()
		return false
	}
	return true
}

func (r *region) exit() {
	if r.parent != nil {
		r.parent.guard.Exit()
	}
	r.guard.Exit()
}

// stagTable maps the 24-bit index of a key to what it names. Indices are random (RFC 5040 section 8.1.1: STags must be
// hard to predict and sparse); the low 8 bits are the user's part of a window's key.
type stagTable struct {
	mu    sync.RWMutex
	slots map[uint32]*region // nil = reserved by a window that is not bound
	pool  []byte             // random bytes not used yet
}

// reserve returns a key with a free index, whose slot holds r, or nothing for nil.
func (t *stagTable) reserve(r *region) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots == nil {
		t.slots = make(map[uint32]*region)
	}
	for {
		if len(t.pool) < 4 {
			t.pool = make([]byte, 256)
			if _, err := rand.Read(t.pool); err != nil {
				return 0, err
			}
		}
		stag := binary.BigEndian.Uint32(t.pool)
		t.pool = t.pool[4:]
		if _, taken := t.slots[stag>>8]; taken || stag>>8 == 0 {
			continue
		}
		if r != nil {
			r.stag = stag
		}
		t.slots[stag>>8] = r
		return stag, nil
	}
}

// lookup returns what a key names, nil if nothing.
func (t *stagTable) lookup(stag uint32) *region {
	t.mu.RLock()
	r := t.slots[stag>>8]
	t.mu.RUnlock()
	if r == nil || r.stag != stag {
		return nil
	}
	return r
}

// release frees a slot.
func (t *stagTable) release(index uint32) (old *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.slots[index]
	delete(t.slots, index)
	return old
}

// reject is the reason for which an access is refused. The same reason has different Terminate codes for a message that
// carries data and for one that asks for an operation.
type reject uint8

const (
	accepted reject = iota
	rejectSTag
	rejectBounds
	rejectRights
	rejectAssociation
	rejectWrap
)

// tagged returns the fault of a tagged message (RFC 5041 section 7.2). Missing rights have no DDP code: they are RDMAP's
// remote protection error, as for the other messages.
func (r reject) tagged() fault {
	code := uint8(ddp.TaggedInvalidSTag)
	switch r {
	case rejectBounds:
		code = ddp.TaggedBounds
	case rejectRights:
		return fault{rdmap.LayerRDMAP, rdmap.ErrTypeProtection, rdmap.ProtAccess}
	case rejectAssociation:
		code = ddp.TaggedNotAssociated
	case rejectWrap:
		code = ddp.TaggedWrap
	}
	return fault{rdmap.LayerDDP, ddp.ErrTypeTagged, code}
}

// request returns the fault of a Read Request or Atomic Request (RFC 5040 section 7.2).
func (r reject) request() fault {
	code := uint8(rdmap.ProtInvalidSTag)
	switch r {
	case rejectBounds:
		code = rdmap.ProtBounds
	case rejectRights:
		code = rdmap.ProtAccess
	case rejectAssociation:
		code = rdmap.ProtNotAssociated
	case rejectWrap:
		code = rdmap.ProtWrap
	}
	return fault{rdmap.LayerRDMAP, rdmap.ErrTypeProtection, code}
}

// check judges an access of n bytes at address to through key stag, in the order key, association, rights, wrap, bounds. On success
// the region has been entered: the caller exits it when it is done with the memory.
func (t *stagTable) check(q *qp, stag uint32, to uint64, n int, need verbs.AccessFlags) (*region, []byte, reject) {
	return t.checkIn(q.pd, q, stag, to, n, need)
}

// checkIn is check for keys of the given domain.
func (t *stagTable) checkIn(pd *domain, q *qp, stag uint32, to uint64, n int, need verbs.AccessFlags) (*region, []byte, reject) {
	r := t.lookup(stag)
	if r == nil || !r.enter() {
		return nil, nil, rejectSTag
	}
	var why reject
	end, wrapped := bits.Add64(to, uint64(n), 0)
	switch {
	case r.pd != pd || r.qp != nil && r.qp != q:
		why = rejectAssociation
	case r.access&need != need:
		why = rejectRights
	case wrapped != 0:
		why = rejectWrap
	case to < r.base || end-r.base > uint64(len(r.mem)):
		why = rejectBounds
	default:
		off := to - r.base
		return r, r.mem[off : off+uint64(n) : off+uint64(n)], accepted
	}
	r.exit()
	return nil, nil, why
}
