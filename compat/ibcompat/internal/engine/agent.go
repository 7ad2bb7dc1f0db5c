// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// execute performs the peer's atomic on local memory and returns the Answer. The operation is
// atomic with respect to everything else that accesses the word: other connections, the user-space
// RNIC, and the processor.
func (q *qp) execute(a wire.AtomicRequest) wire.Header {
	h := wire.Header{Kind: wire.Answer}
	if q.access&verbs.AccessRemoteAtomic == 0 {
		h.Status = uint8(verbs.WCRemInvReqErr)
		return h
	}
	mem, m, err := q.dom.find(a.RKey, a.Addr, 8, verbs.AccessRemoteAtomic)
	if err != nil {
		h.Status = uint8(verbs.WCRemAccessErr)
		return h
	}
	if a.Addr%8 != 0 || !regmem.Aligned(mem) {
		m.mu.RUnlock()
		h.Status = uint8(verbs.WCRemInvReqErr)
		return h
	}
	value, gone := m.change(mem, func(mem []byte) uint64 {
		if a.CmpSwap {
			return regmem.CmpSwap(mem, a.Compare, a.CompareMask, a.Operand, a.Mask)
		}
		return regmem.FetchAdd(mem, a.Operand, a.Mask)
	})
	if gone != nil {
		h.Status = uint8(verbs.WCRemAccessErr)
		return h
	}
	h.Value = value
	return h
}
