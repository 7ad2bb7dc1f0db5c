// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// errBroken is the cause when the library does not tell how many requests of a list it took.
var errBroken = errors.New("the library failed and does not tell which requests it took")

// sendList is a list of sends as the device takes it.
type sendList struct {
	wrs  []ibverbs.Send
	sges []ibverbs.SGE
	ext  []ibverbs.Ext
	ud   bool // requests are datagrams
}

// begin makes room for a list.
func (s *sendList) begin(n int) {
	if cap(s.wrs) < n {
		s.wrs = make([]ibverbs.Send, max(n, 2*cap(s.wrs)))
	}
	s.wrs, s.sges, s.ext = s.wrs[:n], s.sges[:0], s.ext[:0]
}

// put converts a request, the ith of the list.
func (s *sendList) put(i int, w *SendWR) {
	s.sges = append(s.sges, flatSGEs(w.SGL)...)
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
func (s *sendList) extend(w *SendWR, f *ibverbs.Send) {
	var x ibverbs.Ext
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.Imm = w.InvalidateRKey
		return
	case WRAtomicFetchAndAdd:
		x.A = w.Add
	case WRAtomicCmpAndSwp:
		x.A, x.B = w.Compare, w.Swap
	case WRMaskedAtomicFetchAndAdd:
		x.A, x.P = w.Add, w.AddMask
	case WRMaskedAtomicCmpAndSwp:
		x.A, x.B, x.P, x.Q = w.Compare, w.Swap, w.CompareMask, w.SwapMask
	case WRImmData:
		x.A = w.Imm64
	case WRAtomicWrite:
		x.A = w.Swap
	case WRBindMW:
		f.Imm = 0
		x.P = ownMW(w.Bind).c.Handle()
		x.Q = ownMR(w.Bind).c.Handle()
		x.A, x.B = w.Bind.Addr, w.Bind.Length
		x.C, x.D = w.RKey, uint32(w.Bind.Access)
	default:
		x.P = ownAH(w.UD).c.Handle()
		x.C, x.D = w.UD.RemoteQPN, w.UD.RemoteQKey
	}
	s.ext = append(s.ext, x)
	f.Ext = uint32(len(s.ext))
}

// flatten converts what all requests have.
func flatten(f *ibverbs.Send, w *SendWR) {
	f.ID, f.RemoteAddr, f.RKey, f.Imm = w.ID, w.RemoteAddr, w.RKey, w.Imm
	f.Op, f.Ext = flatOp(w.Opcode, w.Flags&^SendRelaxed, len(w.SGL)), 0
}

func flatOp(op WROpcode, flags SendFlags, sges int) uint32 {
	return ibverbs.MakeOp(uint8(op), uint8(flags), sges)
}

// The errors of a post to a QP that does not take it yet.

func sendsBefore(st QPState) error {
	return &StateError{State: st, Why: "sends can be posted from RTS on"}
}

func recvsBefore(st QPState) error {
	return &StateError{State: st, Why: "receives can be posted from INIT on"}
}

// postResult reads the result of a post.
func postResult(call string, res ibverbs.Posted) (int, error) {
	taken, why := int(uint32(res)), uint32(res>>32)
	switch {
	case why == 0:
		return taken, nil
	case why == ibverbs.Broken:
		return taken, fmt.Errorf("%s: %w", call, errBroken)
	case why&ibverbs.Broken != 0:
		return taken, fmt.Errorf("%w: %w", errBroken, callError(call, syscall.Errno(why&^ibverbs.Broken)))
	}
	return taken, postError(call, syscall.Errno(why))
}

// postError makes the error of an errno for which the device did not take a request.
func postError(call string, why error) error {
	err := callError(call, why)
	if why == syscall.ENOMEM || why == syscall.ENOSPC { // ENOSPC is what some drivers say of a WRAtomicWrite
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}
