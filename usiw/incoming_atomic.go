// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// atomicRequest performs an atomic and queues its response (RFC 7306 section 5). It accesses memory
// only after all checks: operation, key, association, rights, wrap, bounds, alignment.
func (c *conn) atomicRequest(h ddp.Untagged, payload []byte) (fault, bool) {
	ar, err := rdmap.ParseAtomicRequest(payload)
	if err != nil {
		return faultStream, false
	}
	if c.overIRD() {
		return faultNoBuffer, false
	}
	if ar.Op != rdmap.AtomicFetchAdd && ar.Op != rdmap.AtomicCmpSwap {
		return faultOpcode, false
	}
	if c.q.remoteAccess()&verbs.AccessRemoteAtomic == 0 {
		return c.denied(rejectRights, ar.STag, ar.TO, 8, verbs.AccessRemoteAtomic).request(), false
	}
	reg, mem, why := c.dev.stags.check(c.q, ar.STag, ar.TO, 8, verbs.AccessRemoteAtomic)
	if why != accepted {
		return c.denied(why, ar.STag, ar.TO, 8, verbs.AccessRemoteAtomic).request(), false
	}
	if !regmem.Aligned(mem) {
		reg.exit()
		c.rx.access = &verbs.AccessError{Fault: verbs.AccessMisaligned, Key: ar.STag, Addr: ar.TO, Length: 8,
			Element: -1}
		return faultStream, false
	}
	v, why := reg.change(mem, func(mem []byte) uint64 {
		if ar.Op == rdmap.AtomicFetchAdd {
			return regmem.FetchAdd(mem, ar.AddSwap, ar.AddSwapMask)
		}
		return regmem.CmpSwap(mem, ar.Compare, ar.CompareMask, ar.AddSwap, ar.AddSwapMask)
	})
	if why != accepted {
		return c.denied(why, ar.STag, ar.TO, 8, verbs.AccessRemoteAtomic).request(), false
	}
	res := rdmap.AtomicResponse{ID: ar.ID, Value: v}
	c.answer(response{msn: h.MSN, atomic: true, result: res})
	return fault{}, true
}

// atomicAnswer completes our oldest atomic (RFC 7306 section 5.2.2): responses arrive in request
// order.
func (c *conn) atomicAnswer(_ ddp.Untagged, payload []byte) (fault, bool) {
	res, err := rdmap.ParseAtomicResponse(payload)
	if err != nil {
		return faultStream, false
	}
	e := c.oldest(&c.tx.atomics)
	if e == nil {
		return faultNoBuffer, false
	}
	if res.ID != e.msn {
		return faultStream, false
	}
	sink := e.sgl[0]
	reg, mem, why := c.q.local(sink.LKey, sink.Addr, 8, verbs.AccessLocalWrite)
	if why == accepted {
		var native [8]byte
		binary.NativeEndian.PutUint64(native[:], res.Value)
		why = reg.place(mem, native[:])
	}
	if why != accepted {
		c.lost(e, elementError(why, 0, sink, verbs.AccessLocalWrite))
		return faultPlace, false
	}
	c.answered(&c.tx.atomics, e)
	return fault{}, true
}
