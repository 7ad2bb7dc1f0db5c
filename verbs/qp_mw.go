// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// BindMW queues the bind of a type 1 window (ibv_bind_mw(3)) as request id, in order with the send
// requests. It has a completion like them. When BindMW returns, the window has its new key, see
// [MW.RKey]; the key gives access when the request has completed. A length of 0 removes all access.
// Windows of type 2 are bound by a WRBindMW.
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

// rekey sets the keys of windows after their binds have been posted.
func rekey(wrs []SendWR) {
	for i := range wrs {
		if b := wrs[i].Bind; b != nil && wrs[i].Opcode == WRBindMW {
			b.MW.rkey.Store(wrs[i].RKey)
		}
	}
}
