// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// Requests that the other side must refuse, made through the verbs of either side: what the
// user-space RNIC sends or understands, and what siw does.

// codes are layer, type and code of a Terminate.
type codes [3]uint8

// of returns the error of a Terminate with these codes.
func (c codes) of(remote bool) *verbs.TerminateError {
	return &verbs.TerminateError{Layer: c[0], Type: c[1], Code: c[2], Remote: remote}
}

// refusal is a request of 8 bytes, created by make, that the other side must refuse.
type refusal struct {
	name string
	// make prepares the other side and returns the request.
	make func(s, other *side) verbs.SendWR
	// kernel is siw's response, user that of the user-space RNIC.
	kernel, user codes
}

// accepted marks requests that siw does not refuse; see TestKernelAccepts.
var accepted = codes{0xff}

// target returns a request on a region.
func target(s *side, op verbs.WROpcode, mr *verbs.MR, off int) verbs.SendWR {
	return verbs.SendWR{Opcode: op, SGL: s.sgl(0, 8), RemoteAddr: mr.Addr() + uint64(off), RKey: mr.RKey()}
}

var refusals = []refusal{
	{"Write, unknown key", func(s, o *side) verbs.SendWR {
		wr := target(s, verbs.WRRDMAWrite, o.mem, 0)
		wr.RKey ^= 0x5a5a5a00
		return wr
	}, codes{1, 1, 0}, codes{1, 1, 0}},
	{"Write, old key", func(s, o *side) verbs.SendWR {
		wr := target(s, verbs.WRRDMAWrite, o.mem, 0)
		wr.RKey ^= 1
		return wr
	}, codes{1, 1, 0}, codes{1, 1, 0}},
	{"Write, bounds", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMAWrite, o.mem, o.mem.Len()-7)
	}, codes{1, 1, 1}, codes{1, 1, 1}},
	// Only RDMAP has a code for missing rights; siw uses the code for an invalid STag.
	{"Write, no right", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMAWrite, o.region(o.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteRead), 0)
	}, codes{1, 1, 0}, codes{0, 1, 2}},
	{"Write, foreign PD", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMAWrite, o.region(o.foreignPD(), 64, rights), 0)
	}, codes{1, 1, 2}, codes{1, 1, 2}},
	{"Read, unknown key", func(s, o *side) verbs.SendWR {
		wr := target(s, verbs.WRRDMARead, o.mem, 0)
		wr.RKey ^= 0x5a5a5a00
		return wr
	}, codes{0, 1, 0}, codes{0, 1, 0}},
	{"Read, bounds", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMARead, o.mem, o.mem.Len()-7)
	}, codes{0, 1, 1}, codes{0, 1, 1}},
	{"Read, no right", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMARead, o.region(o.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite), 0)
	}, accepted, codes{0, 1, 2}},
	{"Read, foreign PD", func(s, o *side) verbs.SendWR {
		return target(s, verbs.WRRDMARead, o.region(o.foreignPD(), 64, rights), 0)
	}, codes{0, 1, 3}, codes{0, 1, 3}},
	{"Send, no receive", func(s, o *side) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(0, 8)}
	}, codes{1, 2, 2}, codes{1, 2, 2}},
	{"Send, too long", func(s, o *side) verbs.SendWR {
		o.recv(1, o.sgl(0, 7))
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(0, 8)}
	}, codes{1, 2, 2}, codes{1, 2, 5}},
	{"Send with Invalidate, unknown key", func(s, o *side) verbs.SendWR {
		o.recv(1, o.sgl(0, 8))
		return verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: o.mem.RKey() ^ 0x5a5a5a00}
	}, codes{0, 2, 9}, codes{0, 2, 9}},
	{"Send with Invalidate, foreign PD", func(s, o *side) verbs.SendWR {
		o.recv(1, o.sgl(0, 8))
		return verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: o.region(o.foreignPD(), 64, rights).RKey()}
	}, codes{0, 1, 9}, codes{0, 1, 9}},
}

// foreignPD creates another protection domain.
func (s *side) foreignPD() *verbs.PD {
	s.t.Helper()
	pd, err := s.ctx.AllocPD()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, pd.Close()) })
	return pd
}

// TestRefusals: each side makes requests that the other must refuse. The memory of the refusing
// side does not change, the connection ends on both sides, and another connection still works.
func TestRefusals(t *testing.T) {
	needKernel(t)
	for _, offender := range []string{"user space", "kernel"} {
		for _, r := range refusals {
			if offender == "user space" && r.kernel == accepted {
				continue
			}
			t.Run(offender+"/"+r.name, func(t *testing.T) {
				by := here.link(t, linkConfig{memory: 16384})
				l := here.link(t, linkConfig{memory: 4096})
				s, other := l.user, l.kernel
				if offender == "kernel" {
					s, other = other, s
				}
				other.blank(0, other.mem.Len())
				fill(s.mem.Bytes()[:8], 1)
				wr := r.make(s, other)
				s.post(wr)
				if wr.Opcode == verbs.WRSendWithInv && offender == "user space" {
					// siw leaves it to its program to close the connection.
					require.Equal(t, verbs.WCRemInvReqErr, other.received().Status)
				}
				reason := other.ended()
				mine := s.ended()
				if offender == "kernel" {
					require.ErrorIs(t, reason, r.user.of(false))
					require.Error(t, mine)
				} else {
					require.ErrorIs(t, mine, r.kernel.of(true), "%v", mine)
					require.Error(t, reason)
				}
				if wr.Opcode == verbs.WRRDMARead {
					require.NotEqual(t, verbs.WCSuccess, s.sent().Status)
				}
				other.holds(0, nil)
				by.user.sends(by.kernel, 4)
				by.kernel.reads(by.user, 4)
			})
		}
	}
}

// TestKernelAccepts: siw does not check the right to read a region.
func TestKernelAccepts(t *testing.T) {
	needKernel(t)
	l := here.link(t, linkConfig{memory: 16384})
	secret := l.kernel.region(l.kernel.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	fill(secret.Bytes(), 9)
	l.user.ok(l.user.run(target(l.user, verbs.WRRDMARead, secret, 0)), verbs.WCRDMARead)
	require.Equal(t, secret.Bytes()[:8], l.user.mem.Bytes()[:8])
}

// TestProbe: siw does not support atomics. A probe reports that instead of a protocol violation.
func TestProbe(t *testing.T) {
	needKernel(t)
	for _, active := range []bool{false, true} {
		l := here.link(t, linkConfig{kernelActive: active, memory: 4096})
		got, err := ext.Probe(soon(t), l.user.qp, l.kernel.mem.Addr(), l.kernel.mem.RKey())
		require.NoError(t, err)
		require.Equal(t, ext.NotSupported, got.Outcome, "%v", got.Reason)
		// siw sends the bytes 20 06, which the RFC defines as 2/0/06.
		require.ErrorIs(t, got.Reason, codes{2, 0, 6}.of(true))
		require.ErrorContains(t, got.Reason, "unexpected opcode")
		require.Error(t, l.kernel.ended())
	}
}

// TestUnknownOperations: operations that only the user-space RNIC supports terminate a connection
// to siw. On siw's side they are refused before anything is sent.
func TestUnknownOperations(t *testing.T) {
	needKernel(t)
	word := func(s *side, wr verbs.SendWR, o *side) verbs.SendWR { wr.SGL = s.sgl(8, 8); return o.at(wr, 0) }
	for _, c := range []struct {
		name string
		op   verbs.Op
		wr   verbs.SendWR
	}{
		{"Write with immediate", verbs.OpWriteImm, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 1}},
		{"Immediate Data", verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 1}},
		{"FetchAdd", verbs.OpFetchAdd, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}},
		{"CmpSwap", verbs.OpCmpSwap, verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Swap: 1}},
		{"masked FetchAdd", verbs.OpMaskedFetchAdd, verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: 1}},
		{"masked CmpSwap", verbs.OpMaskedCmpSwap, verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Swap: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := here.link(t, linkConfig{memory: 16384})
			l.kernel.recv(1, nil)

			require.False(t, l.kernel.ctx.Supports(c.op))
			mine := c.wr
			if c.op != verbs.OpImm64 {
				mine = word(l.kernel, mine, l.user)
			}
			n, err := l.kernel.qp.PostSend([]verbs.SendWR{mine})
			require.ErrorIs(t, err, verbs.ErrNotSupported)
			require.Zero(t, n)
			l.user.reads(l.kernel, 3) // the connection is unaffected

			l.kernel.blank(0, 4096)
			theirs := c.wr
			switch c.op {
			case verbs.OpImm64:
			case verbs.OpWriteImm: // without data, because siw would place it before it finds the unknown operation
			default:
				theirs = word(l.user, theirs, l.kernel)
			}
			l.user.post(theirs)
			require.ErrorIs(t, l.user.ended(), codes{2, 0, 6}.of(true))
			require.Error(t, l.kernel.ended())
			require.Equal(t, verbs.WCWRFlushErr, l.kernel.received().Status)
			l.kernel.holds(0, nil)
			if wc := l.user.sent(); c.op != verbs.OpImm64 && c.op != verbs.OpWriteImm {
				require.NotEqual(t, verbs.WCSuccess, wc.Status)
			}
		})
	}
}
