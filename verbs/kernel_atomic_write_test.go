// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

var atomicWriteOps = verbs.MakeOpSet(verbs.OpAtomicWrite)

// sayAtomicWrite makes a device one that says that it has Atomic Writes.
func sayAtomicWrite(dev int, change func(*fakeverbs.Attr)) {
	attr := fakeverbs.DeviceAttr(dev)
	attr.CapFlags |= uint64(verbs.DeviceAtomicWrite)
	if change != nil {
		change(&attr)
	}
	fakeverbs.SetDeviceAttr(dev, attr)
}

// atomicWriteRigs are the devices that have Atomic Writes: one that is trusted, and one whose
// requests are in a ledger. Their QPs are created for them.
var atomicWriteRigs = map[string]func(t testing.TB) *rig{
	"any device": func(t testing.TB) *rig { return newAtomicWriteRig(t, nil) },
	"rxe": func(t testing.TB) *rig {
		return newAtomicWriteRig(t, func(a *fakeverbs.Attr) { a.VendorID = 0xffffff })
	},
}

func newAtomicWriteRig(t testing.TB, change func(*fakeverbs.Attr)) *rig {
	t.Helper()
	fakeverbs.Start(t)
	sayAtomicWrite(fakeverbs.Fake0, change)
	r := openRig(t, "fake0")
	require.True(t, r.ctx.Supports(verbs.OpAtomicWrite))
	require.False(t, r.qp.Supports(verbs.OpAtomicWrite))
	before, plain := fakeverbs.Calls("ibv_create_qp_ex"), fakeverbs.Calls("ibv_create_qp")
	r.qp = r.newQP(verbs.QPConfig{SendOps: atomicWriteOps})
	require.Equal(t, before+1, fakeverbs.Calls("ibv_create_qp_ex"))
	require.Equal(t, plain, fakeverbs.Calls("ibv_create_qp"))
	require.True(t, r.qp.Supports(verbs.OpAtomicWrite))
	r.up(r.qp)
	return r
}

func atomicWrite(id uint64) verbs.SendWR {
	wr := verbs.AtomicWrite(verbs.Remote{Addr: 8 * id, Length: 1 << 30, RKey: uint32(id) + 1}, ^id)
	wr.ID = id
	return wr
}

// TestAtomicWriteLists: the requests of a list reach the device in their order and with their
// operands, Atomic Writes by the calls of the extended interface and all others by ibv_post_send,
// wherever the list is cut.
func TestAtomicWriteLists(t *testing.T) {
	for name, open := range atomicWriteRigs {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			for _, every := range []int{1, 2, 3, 50, 63, 64, 65} {
				list := make([]verbs.SendWR, 128)
				posts, plain := 0, false
				for i := range list {
					if i%every == every-1 {
						list[i], plain = atomicWrite(uint64(i)), false
						list[i].Flags |= verbs.SendSolicited
						continue
					}
					list[i] = writes(r.mr, 1)[0]
					list[i].ID = uint64(i)
					if !plain {
						posts++
					}
					plain = true
				}
				from := len(fakeverbs.Posted())
				sends, built := fakeverbs.Calls("ibv_post_send"), fakeverbs.Calls("ibv_wr_complete")
				r.post(r.qp, list...)
				require.Equal(t, 128/every, fakeverbs.Calls("ibv_wr_complete")-built)
				require.GreaterOrEqual(t, fakeverbs.Calls("ibv_post_send")-sends, posts)
				if every == 1 {
					require.Equal(t, sends, fakeverbs.Calls("ibv_post_send"))
				}
				got := fakeverbs.Posted()[from:]
				require.Len(t, got, len(list))
				for i, wr := range list {
					require.EqualValues(t, wr.Opcode, got[i].Opcode, i)
					require.Equal(t, wr.RemoteAddr, got[i].RemoteAddr, i)
					require.Equal(t, wr.RKey, got[i].RKey, i)
					require.Equal(t, wr.Swap, got[i].Swap, i)
					require.EqualValues(t, wr.Flags, got[i].Flags, i)
				}
				require.Equal(t, 128, fakeverbs.CompleteSend(r.qp.Num(), 128, 0))
				wcs := r.poll()
				require.Len(t, wcs, 128)
				for i, wc := range wcs {
					require.EqualValues(t, i, wc.ID)
					require.Equal(t, list[i].Opcode == verbs.WRAtomicWrite, wc.Opcode == verbs.WCAtomicWrite, i)
				}
			}
		})
	}
}

// TestAtomicWriteRefused: of a list in which the device refuses an Atomic Write, what is before it
// is posted and nothing behind it.
func TestAtomicWriteRefused(t *testing.T) {
	for name, open := range atomicWriteRigs {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			list := []verbs.SendWR{atomicWrite(0), writes(r.mr, 1)[0], atomicWrite(2), writes(r.mr, 1)[0]}
			for _, rc := range []syscall.Errno{syscall.ENOSPC, syscall.ENOMEM, syscall.EIO} {
				fakeverbs.Fail("ibv_wr_complete", 2, rc)
				n, err := r.qp.PostSend(list)
				require.Equal(t, 2, n)
				require.ErrorIs(t, err, rc)
				require.Equal(t, rc != syscall.EIO, errors.Is(err, verbs.ErrQueueFull))
				require.ErrorContains(t, err, "request 2")
				require.Equal(t, 2, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
				require.Len(t, r.poll(), 2)
			}
			fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 0, Result: int(syscall.ENOMEM)})
			n, err := r.qp.PostSend(list)
			require.Equal(t, 1, n)
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
			require.Equal(t, []uint64{0}, wcIDs(r.poll()))

			r.post(r.qp, list...)
			require.Equal(t, 4, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
			require.Equal(t, []uint64{0, 0, 2, 0}, wcIDs(r.poll()))
		})
	}
}

// TestAtomicWriteNotAsked: a QP that was not created for Atomic Writes is made and used as if the
// device had none.
func TestAtomicWriteNotAsked(t *testing.T) {
	for name, open := range atomicWriteRigs {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			made := fakeverbs.Calls("ibv_create_qp_ex")
			qp := r.newQP(verbs.QPConfig{SendOps: verbs.MakeOpSet(verbs.OpSend, verbs.OpRead)})
			require.Equal(t, made, fakeverbs.Calls("ibv_create_qp_ex"))
			require.False(t, qp.Supports(verbs.OpAtomicWrite))
			r.up(qp)
			n, err := qp.PostSend([]verbs.SendWR{writes(r.mr, 1)[0], atomicWrite(1)})
			require.Equal(t, 1, n)
			require.ErrorIs(t, err, verbs.ErrNotSupported)
			require.ErrorContains(t, err, "ATOMIC_WRITE: the QP was created without atomic-write in QPConfig.SendOps")
			require.Zero(t, fakeverbs.Calls("ibv_wr_start"))
		})
	}
}

// TestAtomicWriteLacking: where the service, the device or the library has no Atomic Writes, the QP
// is refused.
func TestAtomicWriteLacking(t *testing.T) {
	refused := func(r *rig, cfg verbs.QPConfig, reason error, text string) {
		t.Helper()
		cfg.SendCQ, cfg.RecvCQ = r.cq, r.cq
		_, err := r.pd.CreateQP(cfg)
		require.ErrorIs(t, err, reason)
		require.ErrorContains(t, err, text)
	}
	asked := verbs.QPConfig{SendOps: atomicWriteOps}

	r := newRig(t, "fake0")
	require.False(t, r.ctx.Supports(verbs.OpAtomicWrite))
	require.Zero(t, fakeverbs.Calls("ibv_create_qp_ex"), "it is not tried on a device that does not say so")
	refused(r, asked, verbs.ErrNotSupported,
		"CreateQP on fake0: operation not supported: SendOps: the device has no atomic-write for QPs of type RC")
	refused(r, verbs.QPConfig{SendOps: verbs.MakeOpSet(verbs.OpImm64, verbs.OpSend)}, verbs.ErrNotSupported,
		"no imm64 for")
	refused(r, verbs.QPConfig{SendOps: 1 << 31}, verbs.ErrInvalid, "0x80000000")

	// The library's driver has no ibv_create_qp_ex.
	sayAtomicWrite(fakeverbs.Fake1, func(a *fakeverbs.Attr) { a.VendorID = 1 })
	r = openRig(t, "fake1")
	require.False(t, r.ctx.Supports(verbs.OpAtomicWrite))
	refused(r, asked, verbs.ErrNotSupported, "atomic-write")

	r = newAtomicWriteRig(t, nil)
	for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD} {
		refused(r, verbs.QPConfig{SendOps: atomicWriteOps, Type: typ}, verbs.ErrNotSupported, typ.String())
	}
	for _, rc := range []syscall.Errno{syscall.ENOMEM, syscall.EOPNOTSUPP} {
		fakeverbs.Fail("ibv_create_qp_ex", 1, rc)
		refused(r, asked, rc, "ibv_create_qp_ex")
	}
}

// TestAtomicWriteDepth: rxe counts an Atomic Write among the Reads in progress, and stops for good
// if there may be none.
func TestAtomicWriteDepth(t *testing.T) {
	r := atomicWriteRigs["rxe"](t)
	r.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(0, 0)
	r.post(r.qp, atomicWrite(1))
	wcs := r.poll()
	require.Equal(t, []uint64{1}, wcIDs(wcs))
	require.Equal(t, verbs.WCLocQPOpErr, wcs[0].Status)
	require.Zero(t, fakeverbs.Calls("ibv_wr_start"))
}

// TestAtomicWriteFence: a fenced Atomic Write has waited for a Read, and has its operands.
func TestAtomicWriteFence(t *testing.T) {
	r := atomicWriteRigs["rxe"](t)
	r.post(r.qp, reads(r.mr, 0, 1)[0], fenced(atomicWrite(1)), atomicWrite(2))
	require.Len(t, fakeverbs.Posted(), 1)
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	r.poll()
	got := fakeverbs.Posted()
	require.Len(t, got, 3)
	for i := uint64(1); i <= 2; i++ {
		require.Equal(t, []uint64{8 * i, ^i}, []uint64{got[i].RemoteAddr, got[i].Swap})
		require.Zero(t, got[i].Flags&uint32(verbs.SendFence))
	}
}

func TestAtomicWriteAlloc(t *testing.T) {
	if race.Enabled {
		t.Skip("detectors allocate")
	}
	for name, open := range atomicWriteRigs {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			fakeverbs.AutoComplete(true)
			list := []verbs.SendWR{writes(r.mr, 1)[0], atomicWrite(1)}
			wcs := make([]verbs.WC, 4)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if _, err := r.qp.PostSend(list); err != nil {
					t.Fatal(err)
				}
				if n, err := r.cq.Poll(wcs); n != 2 || err != nil {
					t.Fatal(n, err)
				}
			}))
		})
	}
}

func TestAtomicWriteShown(t *testing.T) {
	wr := atomicWrite(2)
	require.EqualExportedValues(t,
		verbs.SendWR{ID: 2, Opcode: verbs.WRAtomicWrite, Flags: verbs.SendSignaled, RemoteAddr: 16, RKey: 3,
			Swap: ^uint64(2)}, wr)
	require.Contains(t, wr.String(), "ATOMIC_WRITE")
	require.Contains(t, wr.String(), "0xfffffffffffffffd")
}
