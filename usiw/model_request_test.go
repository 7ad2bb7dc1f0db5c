// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// modelKinds are the kinds of operations and how often each is drawn. A kind that is not possible
// at the moment, for example because there is no window, reports false.
var modelKinds = []struct {
	name   string
	weight int
	do     func(*modelSide) (bool, error)
}{
	{"Send", 10, func(s *modelSide) (bool, error) { return true, s.send(verbs.SendWR{Opcode: verbs.WRSend}, false) }},
	{"inline Send", 5, func(s *modelSide) (bool, error) {
		return true,
			s.send(verbs.SendWR{Opcode: verbs.WRSend}, true)
	}},
	{"Send with Invalidate", 2, (*modelSide).sendInv},
	{"Write", 20, func(s *modelSide) (bool, error) {
		return true,
			s.write(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, false)
	}},
	{"inline Write", 8, func(s *modelSide) (bool, error) {
		return true, s.write(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, true)
	}},
	{"Write with immediate", 8, func(s *modelSide) (bool, error) { return true, s.writeImm(false) }},
	{"inline Write with immediate", 3, func(s *modelSide) (bool, error) { return true, s.writeImm(true) }},
	{"Immediate Data", 6, func(s *modelSide) (bool, error) { return true, s.imm() }},
	{"Read", 16, func(s *modelSide) (bool, error) { return true, s.read() }},
	{"FetchAdd", 4, func(s *modelSide) (bool, error) {
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: s.rng.Uint64()})
	}},
	{"masked FetchAdd", 4, func(s *modelSide) (bool, error) {
		add, mask := s.rng.Uint64(), s.rng.Uint64()
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: add, AddMask: mask})
	}},
	{"CmpSwap", 4, func(s *modelSide) (bool, error) {
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: s.rng.Uint64(),
			Swap: s.rng.Uint64()})
	}},
	{"masked CmpSwap", 4, func(s *modelSide) (bool, error) {
		// Only a few bits are compared, so that some comparisons match.
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: s.rng.Uint64(),
			CompareMask: 1 << s.rng.IntN(64), Swap: s.rng.Uint64(), SwapMask: s.rng.Uint64()})
	}},
	{"counter", 3, func(s *modelSide) (bool, error) { return true, s.count() }},
	{"sum", 2, func(s *modelSide) (bool, error) {
		v := s.rng.Uint64()
		s.added += v
		return true, s.sharedAdd(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: v}, modelSum, nil)
	}},
	{"fields", 2, func(s *modelSide) (bool, error) {
		v := s.rng.Uint64()
		s.fields = modelFetchAdd(s.fields, v, modelMask)
		wr := verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: v, AddMask: modelMask}
		return true, s.sharedAdd(wr, modelFields, nil)
	}},
	{"return a window", 2, (*modelSide).giveBack},
}

func (s *modelSide) send(wr verbs.SendWR, inline bool) error {
	return s.sendAs(wr, inline, modelArrival{opcode: verbs.WCRecv})
}

func (s *modelSide) sendAs(wr verbs.SendWR, inline bool, a modelArrival) (err error) {
	if err := s.credit(); err != nil {
		return err
	}
	if a.data, err = s.gather(&wr, s.size(), inline); err != nil {
		return err
	}
	a.byteLen = len(a.data)
	s.peer.arriving <- a
	s.wrote = -1
	s.solicit(&wr)
	s.add(wr, verbs.WCSend, nil)
	return nil
}

// solicit makes some of the messages solicited.
func (s *modelSide) solicit(wr *verbs.SendWR) {
	if s.rng.IntN(2) == 0 {
		wr.Flags |= verbs.SendSolicited
	}
}

// sendInv invalidates one of the peer's windows with a Send.
func (s *modelSide) sendInv() (bool, error) {
	w := s.takeWindow()
	if w == nil {
		return false, nil
	}
	// Reads through the window are answered before the window is invalidated.
	wr := verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: w.rkey, Flags: verbs.SendFence}
	return true, s.sendAs(wr, false, modelArrival{opcode: verbs.WCRecv, flags: verbs.WCWithInv, inv: w})
}

// takeWindow takes one of the windows out of use; it returns nil if there is none.
func (s *modelSide) takeWindow() *modelWindow {
	if len(s.windows) == 0 {
		return nil
	}
	w := s.windows[0]
	s.windows = s.windows[1:]
	return w
}

func (s *modelSide) write(wr verbs.SendWR, inline bool) error {
	data, err := s.gather(&wr, s.size(), inline)
	if err != nil {
		return err
	}
	s.wrote = len(data)
	s.place(&wr, data)
	s.add(wr, verbs.WCRDMAWrite, nil)
	return nil
}

// place chooses the target of a Write and applies it to the model.
func (s *modelSide) place(wr *verbs.SendWR, data []byte) {
	r := s.aim(wr, len(data), false)
	s.fenceRemote(wr, r, false)
	copy(s.peer.target.want[r.off:], data)
}

func (s *modelSide) writeImm(inline bool) error {
	if err := s.credit(); err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: s.rng.Uint32()}
	data, err := s.gather(&wr, s.size(), inline)
	if err != nil {
		return err
	}
	s.place(&wr, data)
	s.peer.arriving <- modelArrival{opcode: verbs.WCRecvRDMAWithImm, flags: verbs.WCWithImm, byteLen: len(data),
		imm: uint64(wr.Imm) << 32}
	s.wrote = -1
	s.solicit(&wr)
	s.add(wr, verbs.WCRDMAWrite, nil)
	return nil
}

// imm sends Immediate Data, which belongs to the Write immediately before it, if there is one.
func (s *modelSide) imm() error {
	if err := s.credit(); err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRImmData, Imm64: s.rng.Uint64()}
	a := modelArrival{opcode: verbs.WCRecvImmData, flags: verbs.WCWithImm, byteLen: rdmap.ImmediateLen, imm: wr.Imm64}
	if s.wrote >= 0 {
		a.opcode, a.byteLen = verbs.WCRecvRDMAWithImm, s.wrote
	}
	s.peer.arriving <- a
	s.wrote = -1
	s.solicit(&wr)
	s.add(wr, verbs.WCImmData, nil)
	return nil
}

func (s *modelSide) read() error {
	n := s.size()
	wr := verbs.SendWR{Opcode: verbs.WRRDMARead}
	to, from := s.part(s.data, n), s.aim(&wr, n, false)
	s.fenceLocal(&wr, to)
	if n > 0 || s.rng.IntN(2) == 0 {
		sge, err := s.data.SGE(to.off, to.n)
		if err != nil {
			return err
		}
		wr.SGL = []verbs.SGE{sge}
	}
	copy(s.data.want[to.off:to.off+n], s.peer.target.want[from.off:])
	s.wrote = -1
	s.add(wr, verbs.WCRDMARead, nil)
	s.hazards = append(s.hazards, modelHazard{index: s.built - 1, remote: from, local: to})
	return nil
}

// atomic performs an atomic on a word of the peer's target.
func (s *modelSide) atomic(wr verbs.SendWR) error {
	to, at := s.part(s.data, 8), s.aim(&wr, 8, true)
	s.fenceLocal(&wr, to)
	s.fenceRemote(&wr, at, true)
	sge, err := s.data.SGE(to.off, to.n)
	if err != nil {
		return err
	}
	wr.SGL = []verbs.SGE{sge}
	const all = ^uint64(0)
	word := s.peer.target.want[at.off:]
	old := binary.NativeEndian.Uint64(word)
	opcode, v := verbs.WCFetchAdd, old+wr.Add
	switch wr.Opcode {
	case verbs.WRMaskedAtomicFetchAndAdd:
		opcode, v = verbs.WCMaskedFetchAdd, modelFetchAdd(old, wr.Add, wr.AddMask)
	case verbs.WRAtomicCmpAndSwp:
		if s.rng.IntN(2) == 0 {
			wr.Compare = old
		}
		opcode, v = verbs.WCCompSwap, modelCmpSwap(old, wr.Compare, all, wr.Swap, all)
	case verbs.WRMaskedAtomicCmpAndSwp:
		opcode, v = verbs.WCMaskedCompSwap, modelCmpSwap(old, wr.Compare, wr.CompareMask, wr.Swap, wr.SwapMask)
	}
	binary.NativeEndian.PutUint64(word, v)
	binary.NativeEndian.PutUint64(s.data.want[to.off:], old)
	s.wrote = -1
	s.add(wr, opcode, nil)
	s.hazards = append(s.hazards, modelHazard{index: s.built - 1, remote: at, local: to, atomic: true})
	return nil
}

// count increments a word that all sides increment.
func (s *modelSide) count() error {
	wr := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}
	return s.sharedAdd(wr, modelCounter, func(old uint64) { s.seen = append(s.seen, old) })
}

// sharedAdd adds to a shared word, whose previous value is only known afterwards.
func (s *modelSide) sharedAdd(wr verbs.SendWR, off int, then func(old uint64)) error {
	at := 8 * (s.results.next % modelResults)
	s.results.next++
	sge, err := s.results.SGE(at, 8)
	if err != nil {
		return err
	}
	shared := s.model.shared[1-s.side]
	wr.SGL, wr.RKey, wr.RemoteAddr = []verbs.SGE{sge}, shared.RKey(), shared.Addr()+uint64(off)
	opcode := verbs.WCFetchAdd
	if wr.Opcode == verbs.WRMaskedAtomicFetchAndAdd {
		opcode = verbs.WCMaskedFetchAdd
	}
	s.wrote = -1
	s.add(wr, opcode, func() {
		copy(s.results.want[at:at+8], s.results.Bytes()[at:])
		if then != nil {
			then(binary.NativeEndian.Uint64(s.results.want[at:]))
		}
	})
	return nil
}

// bind gives the peer a window on a part of this side's target.
func (s *modelSide) bind(w *modelWindow) {
	w.part = modelRange{s.rng.IntN(modelWords), 1 + s.rng.IntN(modelWords)}
	if s.rng.IntN(2) == 0 {
		w.part = s.part(s.target, 1+s.rng.IntN(modelTarget))
	}
	w.rkey = w.mw.NextRKey()
	b := &verbs.MWBind{MW: w.mw, MR: s.target.MR, Addr: s.target.Addr() + uint64(w.part.off), Length: uint64(w.part.n),
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic}
	if w.base = b.Addr; s.rng.IntN(2) == 0 {
		w.base, b.Access = 0, b.Access|verbs.AccessZeroBased
	}
	s.counts["bind"]++
	s.add(verbs.SendWR{Opcode: verbs.WRBindMW, RKey: w.rkey, Bind: b}, verbs.WCBindMW, func() { s.bound <- w })
}

// giveBack returns a window to the peer after its last use has been answered.
func (s *modelSide) giveBack() (bool, error) {
	w := s.takeWindow()
	if w == nil {
		return false, nil
	}
	s.wrote = -1
	s.add(verbs.SendWR{Opcode: verbs.WRRDMARead}, verbs.WCRDMARead, func() { s.peer.returned <- w })
	return true, nil
}

// localInv invalidates a window that the peer returned.
func (s *modelSide) localInv(w *modelWindow) {
	s.counts["local invalidate"]++
	s.add(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: w.rkey}, verbs.WCLocalInv, func() {})
}

// exchange returns the windows of both sides and binds them again. Both drivers call it after the
// same number of operations, so that the operations drawn do not depend on which side is faster.
func (s *modelSide) exchange() error {
	for {
		if did, err := s.giveBack(); !did || err != nil {
			break
		}
	}
	if err := s.finish(); err != nil {
		return err
	}
	var own []*modelWindow
	for range modelWindows {
		select {
		case w := <-s.idle:
			own = append(own, w)
		case w := <-s.returned:
			s.localInv(w)
			own = append(own, w)
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	slices.SortFunc(own, func(a, b *modelWindow) int { return a.id - b.id })
	for _, w := range own {
		s.bind(w)
	}
	if err := s.finish(); err != nil {
		return err
	}
	for range modelWindows {
		select {
		case w := <-s.peer.bound:
			s.windows = append(s.windows, w)
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}
