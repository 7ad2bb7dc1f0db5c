// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// rxe waits 50 s for a QP on which a window of type 2 is bound, and destroys it then. fakeverbs
// records a fault instead. So such windows are made anew before.

// mwRig has a window of type 2 and two QPs that are connected to themselves, each with a CQ of its
// own.
type mwRig struct {
	*rig
	mw   *verbs.MW
	a, b *verbs.QP
}

func newMWRig(t *testing.T) *mwRig {
	r := &mwRig{rig: newRXERig(t)}
	fakeverbs.Loopback(true)
	var err error
	r.mw, err = r.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	r.a, r.b = r.own(), r.own()
	return r
}

func (r *mwRig) own() *verbs.QP {
	cq, err := r.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(r, err)
	qp, err := r.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(r, err)
	r.up(qp)
	return qp
}

func (r *mwRig) bind() verbs.SendWR {
	return verbs.SendWR{ID: 1, Opcode: verbs.WRBindMW, RKey: r.mw.NextRKey(), Flags: verbs.SendSignaled,
		Bind: &verbs.MWBind{MW: r.mw, MR: r.mr, Addr: r.mr.Addr(), Length: 64, Access: verbs.AccessRemoteRead}}
}

func (r *mwRig) invalidation() verbs.SendWR {
	return verbs.SendWR{ID: 2, Opcode: verbs.WRLocalInv, InvalidateRKey: r.mw.RKey(), Flags: verbs.SendSignaled}
}

// run posts requests and returns the status of the last.
func (r *mwRig) run(qp *verbs.QP, wrs ...verbs.SendWR) verbs.WCStatus {
	r.Helper()
	r.post(qp, wrs...)
	return r.last(qp)
}

func (r *mwRig) boundAndInvalidated(qp *verbs.QP) verbs.WCStatus {
	r.Helper()
	require.Equal(r, verbs.WCSuccess, r.run(qp, r.bind()))
	return r.run(qp, r.invalidation())
}

// last polls a CQ and returns the status of the last completion.
func (r *mwRig) last(qp *verbs.QP) verbs.WCStatus {
	r.Helper()
	var wcs [16]verbs.WC
	n, err := qp.SendCQ().Poll(wcs[:])
	require.NoError(r, err)
	require.NotZero(r, n)
	return wcs[n-1].Status
}

func (r *mwRig) read(key uint32) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(128, 8)},
		RemoteAddr: r.mr.Addr(), RKey: key}
}

// reads requires that a QP can read with the window's key.
func (r *mwRig) reads(qp *verbs.QP) {
	r.Helper()
	require.Equal(r, verbs.WCSuccess, r.run(qp, r.read(r.mw.RKey())))
}

// TestRXEWindowOfClosedQP: a window that is bound on a QP when that is closed remains, has a new
// key and can be bound again.
func TestRXEWindowOfClosedQP(t *testing.T) {
	for name, bound := range map[string]func(r *mwRig){
		"bound":     func(r *mwRig) { require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind())) },
		"unpolled":  func(r *mwRig) { r.post(r.a, r.bind()) },
		"QP failed": func(r *mwRig) { r.post(r.a, r.bind()); r.to(r.a, verbs.QPStateErr) },
		"QP reset":  func(r *mwRig) { r.post(r.a, r.bind()); r.to(r.a, verbs.QPStateReset) },
		// It may have been executed.
		"flushed": func(r *mwRig) { fakeverbs.Loopback(false); r.post(r.a, r.bind()); fakeverbs.Loopback(true) },
		"invalidation flushed": func(r *mwRig) {
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind()))
			fakeverbs.Loopback(false)
			r.post(r.a, r.invalidation())
			fakeverbs.Loopback(true)
		},
		"forgotten": func(r *mwRig) {
			fakeverbs.Loopback(false)
			r.post(r.a, r.bind())
			r.to(r.a, verbs.QPStateReset)
			fakeverbs.Loopback(true)
		},
		"forgotten, and others reported": func(r *mwRig) {
			fakeverbs.Loopback(false)
			r.post(r.a, r.bind())
			r.to(r.a, verbs.QPStateReset)
			fakeverbs.Loopback(true)
			r.up(r.a)
			require.NoError(r, r.a.BindMW(1, verbs.SendSignaled, r.bind1(r.window1())))
			require.Equal(r, verbs.WCSuccess, r.last(r.a))
		},
		"again": func(r *mwRig) {
			for range 3 {
				require.Equal(r, verbs.WCSuccess, r.boundAndInvalidated(r.a))
			}
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind()))
		},
		"bound elsewhere before": func(r *mwRig) {
			require.Equal(r, verbs.WCSuccess, r.boundAndInvalidated(r.b))
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind()))
		},
		"bound again on it": func(r *mwRig) { // which is wrong, and leaves the window as it is
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind()))
			require.NotEqual(r, verbs.WCSuccess, r.run(r.a, r.bind()))
		},
		"another invalidated": func(r *mwRig) {
			mw, err := r.pd.AllocMW(verbs.MWType2)
			require.NoError(r, err)
			other := r.bind()
			other.Bind.MW, other.RKey = mw, mw.NextRKey()
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.bind(), other))
			require.Equal(r, verbs.WCSuccess,
				r.run(r.a, verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled,
					InvalidateRKey: mw.RKey()}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMWRig(t)
			bound(r)
			stale, key := r.bind(), r.mw.RKey()
			require.NoError(t, r.a.Close())
			require.NotEqual(t, key>>8, r.mw.RKey()>>8)
			require.Equal(t, r.mw.RKey()>>8, r.mw.NextRKey()>>8)
			_, err := r.b.PostSend([]verbs.SendWR{stale})
			require.ErrorIs(t, err, verbs.ErrInvalid, "a key of the window as it was")
			bind := r.bind()
			require.Equal(t, verbs.WCSuccess, r.run(r.b, bind))
			require.Equal(t, bind.RKey, r.mw.RKey())
			r.reads(r.b)
			key = r.mw.RKey()
			require.NoError(t, r.b.Close())
			require.NotEqual(t, key>>8, r.mw.RKey()>>8, "and once more")
			require.NoError(t, r.mw.Close())
			require.Equal(t, fakeverbs.Calls("ibv_alloc_mw"), fakeverbs.Calls("ibv_dealloc_mw")+fakeverbs.Live()["MW"])
		})
	}
}

// TestRXEWindowKept: a QP that is closed leaves windows alone that are not bound on it.
func TestRXEWindowKept(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *mwRig)
		reads  bool // it is bound on the other QP
	}{
		"new":         {before: func(*mwRig) {}},
		"invalidated": {before: func(r *mwRig) { require.Equal(r, verbs.WCSuccess, r.boundAndInvalidated(r.a)) }},
		"unpolled":    {before: func(r *mwRig) { r.post(r.a, r.bind()); r.post(r.a, r.invalidation()) }},
		"invalidated by the peer": {before: func(r *mwRig) {
			r.post(r.a, r.bind())
			_, err := r.a.PostRecv([]verbs.RecvWR{{}})
			require.NoError(r, err)
			r.post(r.a, verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: r.mw.RKey()})
		}},
		"refused": {before: func(r *mwRig) {
			fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 1, Result: int(syscall.ENOMEM)})
			n, err := r.a.PostSend([]verbs.SendWR{r.read(r.mr.RKey()), r.bind()})
			require.ErrorIs(r, err, verbs.ErrQueueFull)
			require.Equal(r, 1, n)
			require.Equal(r, verbs.WCSuccess, r.run(r.a, r.read(r.mr.RKey()))) // it has the number that the bind had
		}},
		"bound on the other": {func(r *mwRig) {
			require.Equal(r, verbs.WCSuccess, r.boundAndInvalidated(r.a))
			require.Equal(r, verbs.WCSuccess, r.run(r.b, r.bind()))
		}, true},
		"bound on the other and polled first": {func(r *mwRig) {
			r.post(r.a, r.bind())
			r.post(r.a, r.invalidation())
			require.Equal(r, verbs.WCSuccess, r.run(r.b, r.bind()))
		}, true},
		"bound on the other and not polled": {func(r *mwRig) {
			r.post(r.a, r.bind())
			r.post(r.a, r.invalidation())
			r.post(r.b, r.bind())
		}, true},
		"cannot be bound on it": {func(r *mwRig) {
			require.Equal(r, verbs.WCSuccess, r.run(r.b, r.bind()))
			require.Equal(r, verbs.WCMWBindErr, r.run(r.a, r.bind()))
		}, false},
		"cannot be invalidated on it": {func(r *mwRig) {
			require.Equal(r, verbs.WCSuccess, r.run(r.b, r.bind()))
			require.Equal(r, verbs.WCMWBindErr, r.run(r.a, r.invalidation()))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMWRig(t)
			c.before(r)
			key, made := r.mw.RKey(), fakeverbs.Calls("ibv_alloc_mw")
			require.NoError(t, r.a.Close())
			require.Equal(t, key, r.mw.RKey())
			require.Equal(t, made, fakeverbs.Calls("ibv_alloc_mw"))
			if c.reads {
				r.reads(r.b)
				require.NoError(t, r.b.Close())
				require.NotEqual(t, key, r.mw.RKey())
			}
		})
	}
}

// TestRXEWindowOfType1: a window of type 1 belongs to no QP, and stays as it is.
func TestRXEWindowOfType1(t *testing.T) {
	r := newMWRig(t)
	mw := r.window1()
	require.NoError(t, r.a.BindMW(1, verbs.SendSignaled, r.bind1(mw)))
	require.Equal(t, verbs.WCSuccess, r.last(r.a))
	key := mw.RKey()
	require.NoError(t, r.a.Close())
	require.Equal(t, key, mw.RKey())
	require.Equal(t, verbs.WCSuccess, r.run(r.b, r.read(key)))
}

// TestRXEWindowClosed: a window that is closed before its QP is not made anew.
func TestRXEWindowClosed(t *testing.T) {
	r := newMWRig(t)
	require.Equal(t, verbs.WCSuccess, r.run(r.a, r.bind()))
	bind := r.bind()
	require.NoError(t, r.mw.Close())
	n, err := r.a.PostSend([]verbs.SendWR{bind})
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NoError(t, r.a.Close())
	require.Equal(t, 1, fakeverbs.Calls("ibv_alloc_mw"))
	require.Zero(t, fakeverbs.Live()["MW"])
}

// TestRXEWindowLost: a window that cannot be made anew can only be closed.
func TestRXEWindowLost(t *testing.T) {
	r := newMWRig(t)
	require.Equal(t, verbs.WCSuccess, r.run(r.a, r.bind()))
	fakeverbs.Fail("ibv_alloc_mw", 1, syscall.ENOMEM)
	require.NoError(t, r.a.Close())
	before := len(fakeverbs.Posted())
	n, err := r.b.PostSend([]verbs.SendWR{writes(r.mr, 1)[0], r.bind()})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Len(t, fakeverbs.Posted(), before+1)
	require.NoError(t, r.b.Close())
	require.NoError(t, r.mw.Close())
	require.Equal(t, 1, fakeverbs.Calls("ibv_dealloc_mw"))

	// It has not been counted twice.
	mw, err := r.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	require.NoError(t, mw.Close())
}

// TestRXEWindowsConcurrently: windows are made anew while others bind them. fakeverbs records a
// fault for a window that C is given when it has been freed.
func TestRXEWindowsConcurrently(t *testing.T) {
	r := newMWRig(t)
	for range 30 {
		a, b := r.own(), r.own()
		require.Equal(t, verbs.WCSuccess, r.run(a, r.bind()))
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, a.Close()) })
		wg.Go(func() {
			for range 20 {
				_, _ = b.PostSend([]verbs.SendWR{r.bind()}) // with the key of then, or by a QP that has failed
				_ = r.mw.RKey()
			}
		})
		wg.Wait()
		require.NoError(t, b.Close())
		require.NoError(t, r.mw.Close())
		var err error
		r.mw, err = r.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
	}
}
