// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// The tests of this file are of what kernel siw and libsiw do otherwise than their manuals say;
// fakeverbs' fake1 records a fault, which fails the test, for every request that would do harm.

func TestSiwOps(t *testing.T) {
	r := newRig(t, "fake1")
	require.Equal(t, verbs.MakeOpSet(verbs.OpSend, verbs.OpSendInv, verbs.OpWrite, verbs.OpRead), r.ctx.Ops())
	r.up(r.qp)
	for op := range 256 {
		wr := verbs.SendWR{Opcode: verbs.WROpcode(op), SGL: []verbs.SGE{r.sge(0, 8)}}
		switch wr.Opcode {
		case verbs.WRSend, verbs.WRSendWithInv, verbs.WRRDMAWrite, verbs.WRRDMARead:
			continue
		}
		_, err := r.qp.PostSend([]verbs.SendWR{wr})
		require.Error(t, err, op)
	}
	require.Zero(t, fakeverbs.Calls("ibv_post_send"), "libsiw indexes a table of 12 with opcodes")
}

// TestSiwState: a query says RESET always.
func TestSiwState(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	for _, state := range []verbs.QPState{verbs.QPStateRTS, verbs.QPStateErr} {
		if state == verbs.QPStateErr {
			require.NoError(t, r.qp.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState))
		}
		require.Equal(t, state, r.qp.State())
		before := fakeverbs.Calls("ibv_query_qp")
		attr, err := r.qp.Query()
		require.NoError(t, err)
		require.Greater(t, fakeverbs.Calls("ibv_query_qp"), before)
		require.Equal(t, []verbs.QPState{state, state}, []verbs.QPState{attr.State, attr.CurState})
	}
	require.ErrorIs(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState), verbs.ErrState)
}

// TestSiwOrder: a Write that has completed before an earlier Read is held back.
func TestSiwOrder(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	r.post(r.qp, verbs.SendWR{ID: 70, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{r.sge(0, 8)}},
		verbs.SendWR{ID: 71, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.sge(0, 8)}})
	posted := fakeverbs.LastPosted()
	fakeverbs.InjectWC(r.qp.Num(), false, fakeverbs.WC{WRID: posted[1].WRID, Opcode: 1})
	require.Empty(t, r.poll())
	fakeverbs.InjectWC(r.qp.Num(), false, fakeverbs.WC{WRID: posted[0].WRID, Opcode: 2, ByteLen: 8})
	wcs := r.poll()
	require.Equal(t, []uint64{70, 71}, wcIDs(wcs))
	require.Equal(t, verbs.WCRDMARead, wcs[0].Opcode)
	fakeverbs.InjectWC(r.qp.Num(), false, fakeverbs.WC{WRID: posted[0].WRID, Status: 5})
	require.Empty(t, r.poll(), "a request ends once")
}

// TestSiwReads: a Read without an element gets one, and a fence is no reason to stop. One of
// another request is kept here.
func TestSiwReads(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	r.post(r.qp, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{r.sge(0, 8)}},
		verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendFence},
		verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendFence, SGL: []verbs.SGE{r.sge(8, 8)}})
	posted := fakeverbs.Posted()
	require.Len(t, posted, 2)
	require.Equal(t, []fakeverbs.SGE{{}}, posted[1].SGEs)
	require.Zero(t, posted[1].Flags&uint32(verbs.SendFence))
	fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
	r.poll()
	posted = fakeverbs.Posted()
	require.Len(t, posted, 3)
	require.Zero(t, posted[2].Flags&uint32(verbs.SendFence))
	require.Equal(t, r.sge(8, 8).Addr, posted[2].SGEs[0].Addr)
	_, err := r.qp.PostRecv([]verbs.RecvWR{{}})
	require.NoError(t, err, "libsiw refuses a receive without an element")
}

// TestSiwDepthNone: a Read at ORD 0 fails in its place in the order, without reaching the device,
// and ends the QP.
func TestSiwDepthNone(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	r.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(0, 0)
	sgl := []verbs.SGE{r.sge(0, 8)}
	r.post(r.qp, verbs.SendWR{ID: 1, Opcode: verbs.WRSend, SGL: sgl},
		verbs.SendWR{ID: 2, Opcode: verbs.WRRDMARead, SGL: sgl},
		verbs.SendWR{ID: 3, Opcode: verbs.WRRDMAWrite, SGL: sgl})
	r.post(r.qp, verbs.SendWR{ID: 4, Opcode: verbs.WRSend, SGL: sgl})
	require.Len(t, fakeverbs.Posted(), 1)
	require.Empty(t, r.poll())
	require.Equal(t, verbs.QPStateRTS, r.qp.State())
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	var wcs []verbs.WC
	for len(wcs) < 3 {
		wcs = append(wcs, r.poll()...)
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, []uint64{2, 3, 4}, wcIDs(wcs))
	require.Equal(t, verbs.WCLocQPOpErr, wcs[0].Status)
	require.Equal(t, verbs.WCWRFlushErr, wcs[1].Status)
	require.ErrorIs(t, r.qp.Err(), verbs.WCLocQPOpErr)
}

// TestSiwForgetsPosts: what is posted to a QP that has lost its connection is accepted and never
// completed, and so is what the doorbell failed for; here both are flushed.
func TestSiwForgetsPosts(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	r.post(r.qp, writes(r.mr, 2)...)
	r.qp.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateErr, syscall.ECONNRESET)
	r.post(r.qp, verbs.SendWR{ID: 9, Opcode: verbs.WRSend})
	require.Len(t, fakeverbs.Posted(), 2, "the device does not get it")
	wcs := r.poll()
	require.Equal(t, []uint64{0, 1, 9}, wcIDs(wcs))
	require.Equal(t, verbs.WCWRFlushErr, wcs[2].Status)
	require.ErrorIs(t, r.qp.Err(), syscall.ECONNRESET)

	other := r.newQP(verbs.QPConfig{})
	r.up(other)
	failed := other.Provider().(verbs.ProviderQPWatcher).Failed()
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 9, Result: -1, NoBadWR: true})
	r.post(other, writes(r.mr, 3)...)
	<-failed
	wcs = nil
	for len(wcs) < 3 {
		wcs = append(wcs, r.poll()...)
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, []uint64{0, 1, 2}, wcIDs(wcs))
	require.Error(t, other.Err())
}

// TestSiwNegative: libsiw's negative results are errors, and that of a full queue says so.
func TestSiwNegative(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 1, Result: -int(syscall.EINVAL)})
	n, err := r.qp.PostSend(writes(r.mr, 2))
	require.Equal(t, 1, n)
	require.ErrorContains(t, err, "gave no errno")
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 1, Result: -int(syscall.ENOMEM)})
	n, err = r.qp.PostSend(writes(r.mr, 2))
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 1, Result: 0})
	n, err = r.qp.PostSend(writes(r.mr, 2))
	require.Equal(t, 1, n, "success after a part of a list")
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, 3, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
	require.Equal(t, []uint64{0, 0, 0}, wcIDs(r.poll()), "what was not taken has no completion")
}

// TestSiwUnsignalled: every request is signalled to the device; the program sees those that it
// signalled.
func TestSiwUnsignalled(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	wrs := writes(r.mr, 3)
	wrs[0].Flags, wrs[1].Flags = 0, 0
	r.post(r.qp, wrs...)
	for _, p := range fakeverbs.Posted() {
		require.NotZero(t, p.Flags&uint32(verbs.SendSignaled))
	}
	fakeverbs.CompleteSend(r.qp.Num(), 3, 0)
	require.Equal(t, []uint64{2}, wcIDs(r.poll()))
	// They do not fill the device's queue either.
	for range 100 {
		r.post(r.qp, wrs[:2]...)
		fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
	}
	for range 2000 {
		r.post(r.qp, wrs[:2]...)
		fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
	}
	require.Empty(t, r.poll())
}

// TestSiwIova: siw would register the memory under its own address.
func TestSiwIova(t *testing.T) {
	r := newRig(t, "fake1")
	_, err := r.pd.RegMRIova(r.mr.Bytes(), 0x10000, 0)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = r.pd.AllocMR(4096, verbs.AccessZeroBased)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}

// TestSiwNudge: on the active side an empty Write is sent when the connection is there, and others
// if the peer does not answer the program's first messages. The program sees nothing of them.
func TestSiwNudge(t *testing.T) {
	empty := func(r *rig) (n int) {
		for _, wr := range fakeverbs.Posted() {
			if !wr.Recv && wr.Opcode == uint32(verbs.WRRDMAWrite) {
				require.Equal(r, fakeverbs.WR{Call: wr.Call, QPN: r.qp.Num(), WRID: wr.WRID, RKey: 1}, wr)
				n++
			}
		}
		return n
	}
	nudged := func(r *rig) int { return empty(r) - 1 } // but for the first
	send := verbs.SendWR{ID: 5, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	begin := func(t *testing.T) *rig {
		r := newRig(t, "fake1")
		r.up(r.qp)
		require.Zero(t, empty(r))
		r.qp.Provider().(verbs.ProviderQPInitiator).Initiated()
		require.Equal(t, 1, empty(r))
		require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, 0))
		require.Empty(t, r.poll())
		return r
	}
	// notNudged looks for one more: the first comes after 250 ms, the second 1 s later.
	notNudged := func(t *testing.T, r *rig) {
		while, n := 400*time.Millisecond, nudged(r)
		if n > 0 { // this test was late
			while = 1300 * time.Millisecond
		}
		time.Sleep(while)
		require.Equal(t, n, nudged(r))
	}

	t.Run("no answer", func(t *testing.T) {
		r := begin(t)
		r.post(r.qp, send)
		require.Eventually(t, func() bool { return nudged(r) > 0 }, 10*time.Second, time.Millisecond)
		n := nudged(r)
		require.Equal(t, 1+n, fakeverbs.CompleteSend(r.qp.Num(), 1+n, 0))
		require.Equal(t, []uint64{5}, wcIDs(r.poll()))
		require.Eventually(t, func() bool { return nudged(r) > n }, 10*time.Second, time.Millisecond)
		require.NoError(t, r.qp.Close()) // flushes the second
		require.Empty(t, r.poll())
	})
	t.Run("an answer", func(t *testing.T) {
		r := begin(t)
		_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 6}})
		require.NoError(t, err)
		r.post(r.qp, send)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		fakeverbs.CompleteRecv(r.qp.Num(), 1, 0, 0)
		require.ElementsMatch(t, []uint64{5, 6}, wcIDs(r.poll()))
		// It may have been sent before the peer's device looked for messages, but what comes now is
		// found.
		require.Eventually(t, func() bool { return nudged(r) > 0 }, 10*time.Second, time.Millisecond)
		require.Equal(t, 1, nudged(r))
		notNudged(t, r)
	})
	t.Run("data read", func(t *testing.T) {
		r := begin(t)
		r.post(r.qp, verbs.SendWR{ID: 7, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{r.sge(0, 8)}})
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		require.Equal(t, []uint64{7}, wcIDs(r.poll()))
		notNudged(t, r)
	})
	t.Run("nothing sent", func(t *testing.T) {
		r := begin(t)
		notNudged(t, r)
	})
	t.Run("passive", func(t *testing.T) {
		r := newRig(t, "fake1")
		r.up(r.qp)
		r.post(r.qp, send)
		time.Sleep(400 * time.Millisecond)
		require.Zero(t, empty(r))
	})
	t.Run("ended before", func(t *testing.T) {
		r := newRig(t, "fake1")
		r.up(r.qp)
		require.NoError(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		r.qp.Provider().(verbs.ProviderQPInitiator).Initiated()
		require.Zero(t, empty(r))
	})
	t.Run("closed", func(t *testing.T) {
		r := begin(t)
		r.post(r.qp, send)
		require.NoError(t, r.qp.Close())
		notNudged(t, r)
	})
}
