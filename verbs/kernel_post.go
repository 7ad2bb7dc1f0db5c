// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// errBroken is the cause when the library does not tell how many requests of a list it took.
var errBroken = errors.New("the library failed and does not tell which requests it took")

// sendList is a list of sends as C takes it.
type sendList struct {
	wrs  []flatSend
	sges []SGE
	ext  []flatExt
	ud   bool // requests are datagrams
}

// begin makes room for a list.
func (s *sendList) begin(n int) {
	if cap(s.wrs) < n {
		s.wrs = make([]flatSend, max(n, 2*cap(s.wrs)))
	}
	s.wrs, s.sges, s.ext = s.wrs[:n], s.sges[:0], s.ext[:0]
}

// put converts a request, the ith of the list.
func (s *sendList) put(i int, w *SendWR) {
	s.sges = append(s.sges, w.SGL...)
	f := &s.wrs[i]
	flatten(f, w)
	if s.ud || w.Opcode > WRRDMARead {
		s.extend(w, f)
	}
}

// fill converts a list.
func (s *sendList) fill(wrs []SendWR) {
	s.begin(len(wrs))
	for i := range wrs {
		s.put(i, &wrs[i])
	}
}

// extend converts what few requests have.
func (s *sendList) extend(w *SendWR, f *flatSend) {
	var x flatExt
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.imm = w.InvalidateRKey
		return
	case WRAtomicFetchAndAdd:
		x.a = w.Add
	case WRAtomicCmpAndSwp:
		x.a, x.b = w.Compare, w.Swap
	case WRMaskedAtomicFetchAndAdd:
		x.a, x.p = w.Add, w.AddMask
	case WRMaskedAtomicCmpAndSwp:
		x.a, x.b, x.p, x.q = w.Compare, w.Swap, w.CompareMask, w.SwapMask
	case WRImmData:
		x.a = w.Imm64
	case WRAtomicWrite:
		x.a = w.Swap
	case WRBindMW:
		f.imm = 0
		x.p = uint64(ownMW(w.Bind).c)
		x.q = uint64(ownMR(w.Bind).c)
		x.a, x.b = w.Bind.Addr, w.Bind.Length
		x.c, x.d = w.RKey, uint32(w.Bind.Access)
	default:
		x.p = uint64(ownAH(w.UD).c)
		x.c, x.d = w.UD.RemoteQPN, w.UD.RemoteQKey
	}
	s.ext = append(s.ext, x)
	f.ext = uint32(len(s.ext))
}

// flatten converts what all requests have.
func flatten(f *flatSend, w *SendWR) {
	f.id, f.remoteAddr, f.rkey, f.imm = w.ID, w.RemoteAddr, w.RKey, w.Imm
	f.op, f.ext = flatOp(w.Opcode, w.Flags&^SendRelaxed, len(w.SGL)), 0
}

func flatOp(op WROpcode, flags SendFlags, sges int) uint32 {
	return uint32(op) | uint32(flags)<<flagsShift | uint32(sges)<<sgesShift
}

// The errors of a post to a QP that does not take it yet.

func sendsBefore(st QPState) error {
	return &StateError{State: st, Why: "sends can be posted from RTS on"}
}

func recvsBefore(st QPState) error {
	return &StateError{State: st, Why: "receives can be posted from INIT on"}
}

// postResult reads what a posting function of cgo_verbs.go returned.
func postResult(call string, res uint64) (int, error) {
	taken, rc := int(uint32(res)), uint32(res>>32)
	switch {
	case rc == 0:
		return taken, nil
	case rc&broken != 0:
		err := callError(call, int(rc&^broken))
		if err == nil {
			return taken, fmt.Errorf("%s: %w", call, errBroken)
		}
		return taken, fmt.Errorf("%w: %w", errBroken, err)
	}
	return taken, postError(call, int(rc))
}

// postError makes the error of an errno for which the device did not take a request.
func postError(call string, rc int) error {
	err := callError(call, rc)
	if rc == int(syscall.ENOMEM) || rc == int(syscall.ENOSPC) { // ENOSPC is what some drivers say of a WRAtomicWrite
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}
