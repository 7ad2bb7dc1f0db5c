// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// region is the memory that a key names: a memory region, or the range of one to which a window is
// bound. It never changes; rebinding creates a new one. Its guard counts the accesses in progress,
// so that deregistration can wait for them.
type region struct {
	guard  lifetime.Guard
	stag   uint32
	pd     *domain
	mem    []byte
	base   uint64 // the address of mem[0]
	access verbs.AccessFlags

	// Windows only: the region to which it is bound, and the one QP that may use it (nil for type
	// 1).
	parent *region
	qp     *qp

	fragile bool // Config.GuardMemory
}

// enter keeps the memory registered until exit. It reports false if the key is no longer valid.
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

// stagTable maps the 24-bit index of a key to the region that the key names. Indices are random,
// because STags must be sparse and hard to predict (RFC 5040 section 8.1.1). The program chooses
// the low 8 bits of a window's key.
type stagTable struct {
	mu    sync.RWMutex
	slots map[uint32]*region // nil = reserved for an unbound window
	pool  []byte             // unused random bytes
}

// reserve returns a key with a free index, and stores r in its slot; r is nil for a window.
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

// lookup returns the region that a key names, or nil if there is none.
func (t *stagTable) lookup(stag uint32) *region {
	t.mu.RLock()
	r := t.slots[stag>>8]
	t.mu.RUnlock()
	if r == nil || r.stag != stag {
		return nil
	}
	return r
}

// release frees a slot and returns the region in it.
func (t *stagTable) release(index uint32) (old *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.slots[index]
	delete(t.slots, index)
	return old
}

// reject is the reason why an access is refused. Its Terminate code depends on the message: tagged
// applies to messages that carry data, request to messages that ask for an operation.
type reject uint8

const (
	accepted reject = iota
	rejectSTag
	rejectBounds
	rejectRights
	rejectAssociation
	rejectWrap
	rejectWindow // local: the key of a window
)

// tagged returns the fault for a tagged message (RFC 5041 section 7.2). DDP has no code for missing
// rights, so they are reported as an RDMAP remote protection error, as for other messages.
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

// request returns the fault for a Read Request or Atomic Request (RFC 5040 section 7.2).
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

// check checks an access of n bytes at address to with key stag, in the order key, association,
// rights, wrap, bounds. If the access is accepted, the region has been entered; the caller must
// exit it after using the memory.
func (t *stagTable) check(q *qp, stag uint32, to uint64, n int, need verbs.AccessFlags) (*region, []byte, reject) {
	return t.checkIn(q.pd, q, stag, to, n, need)
}

// checkIn is check for keys of the given domain.
func (t *stagTable) checkIn(pd *domain, q *qp, stag uint32, to uint64, n int,
	need verbs.AccessFlags) (*region, []byte, reject) {
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
