// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// BindMW queues the bind of a window of type 1.
func (q *kernelQP) BindMW(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	if err := checkBinding(b); err != nil {
		return 0, err
	}
	q.send.direct.Lock()
	defer q.send.direct.Unlock()
	if st := q.qpState(); st < QPStateRTS {
		return 0, bindsBefore(st)
	}
	return q.bind(id, flags, b)
}

// bind hands the bind to the device.
func (q *kernelQP) bind(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	mw := ownMW(b)
	if err := q.c.BindMW(id, uint8(flags), mw.c, ownMR(b).c, b.Addr, b.Length, uint32(b.Access)); err != nil {
		return 0, postError("ibv_bind_mw", err)
	}
	return mw.c.RKey(), nil
}

func bindsBefore(st QPState) error {
	return &StateError{State: st, Why: "windows can be bound from RTS on"}
}
