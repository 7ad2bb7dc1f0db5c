// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "github.com/goverbs/goverbs/verbs"

// BindMW implements verbs.ProviderMWBinder. The new key becomes valid when the request reaches the
// head of the send queue.
func (q *qp) BindMW(id uint64, flags verbs.SendFlags, b *verbs.MWBind) (uint32, error) {
	w, err := verbs.Own[*mw](b.MW.Provider())
	if err != nil {
		return 0, err
	}
	key := w.nextKey()
	wrs := [1]verbs.SendWR{{ID: id, Opcode: verbs.WRBindMW, Flags: flags, RKey: key, Bind: b}}
	_, err = q.PostSend(wrs[:])
	return key, err
}

// nextKey returns the window's key with the next value in its low 8 bits. No two of 256 consecutive
// binds get the same key, even through different QPs.
func (w *mw) nextKey() uint32 {
	for {
		k := w.key.Load()
		next := k&^0xff | (k+1)&0xff
		if w.key.CompareAndSwap(k, next) {
			return next
		}
	}
}
