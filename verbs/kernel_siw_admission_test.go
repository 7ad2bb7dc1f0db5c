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

// While something waits in siw's queue for a Read's answer, siw answers none of the peer's Reads.
// So it waits in the provider. fake1 records a fault for each request that would wait.

// reads makes Reads with IDs from first on.
func reads(mr *verbs.MR, first uint64, n int) (wrs []verbs.SendWR) {
	for i := range n {
		wrs = append(wrs, verbs.SendWR{ID: first + uint64(i), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			RKey: 7, SGL: []verbs.SGE{{Addr: mr.Addr() + uint64(64*i), Length: 64, LKey: mr.LKey()}}})
	}
	return wrs
}

// admissionRig has a QP that may have two Reads unanswered.
func admissionRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "fake1")
	r.up(r.qp)
	r.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(2, 2)
	return r
}

// TestSiwAdmissionReads: as Reads are answered others follow, and what is behind them, in the order
// of posting.
func TestSiwAdmissionReads(t *testing.T) {
	r := admissionRig(t)
	r.post(r.qp, append(reads(r.mr, 0, 5), writes(r.mr, 1)...)...)
	r.post(r.qp, append(writes(r.mr, 1), reads(r.mr, 7, 1)...)...)
	var got []uint64
	for _, has := range []int{2, 3, 4, 7, 8} { // with the last Read but one go the Writes
		require.Len(t, fakeverbs.Posted(), has)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		got = append(got, wcIDs(r.poll())...)
	}
	fakeverbs.CompleteSend(r.qp.Num(), 9, 0)
	got = append(got, wcIDs(r.poll())...)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 0, 0, 7}, got)
	var posted []uint32
	for _, p := range fakeverbs.Posted() {
		posted = append(posted, p.Opcode)
	}
	read, write := uint32(verbs.WRRDMARead), uint32(verbs.WRRDMAWrite)
	require.Equal(t, []uint32{read, read, read, read, read, write, write, read}, posted)
}

// TestSiwAdmissionFence: a fenced request follows when no Read is unanswered, and what is behind it
// with it.
func TestSiwAdmissionFence(t *testing.T) {
	r := admissionRig(t)
	fenced := writes(r.mr, 2)
	fenced[0].Flags |= verbs.SendFence
	r.post(r.qp, append(reads(r.mr, 0, 2), fenced...)...)
	for _, has := range []int{2, 2, 4} {
		require.Len(t, fakeverbs.Posted(), has)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		r.poll()
	}
	fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
	r.poll()
	r.post(r.qp, fenced...)
	require.Len(t, fakeverbs.Posted(), 6, "nothing to wait for")
}

// TestSiwAdmissionEmpty: a Read of 0 bytes follows when no other is unanswered. It keeps nothing
// back itself.
func TestSiwAdmissionEmpty(t *testing.T) {
	r := admissionRig(t)
	for _, sgl := range [][]verbs.SGE{nil, {r.sge(8, 0)}} {
		before := len(fakeverbs.Posted())
		list := reads(r.mr, 0, 3)
		list[1].SGL = sgl
		r.post(r.qp, list...)
		require.Len(t, fakeverbs.Posted()[before:], 1)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		require.Equal(t, []uint64{0}, wcIDs(r.poll()))
		require.Len(t, fakeverbs.Posted()[before:], 3)
		fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
		require.Equal(t, []uint64{1, 2}, wcIDs(r.poll()))
	}
}

// TestSiwAdmissionFull: what waits takes up room in the queue.
func TestSiwAdmissionFull(t *testing.T) {
	r := admissionRig(t)
	qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
	r.up(qp)
	qp.Provider().(verbs.ProviderQPLimiter).SetDepths(2, 2)
	n, err := qp.PostSend(reads(r.mr, 0, 9))
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, 8, n)
	fakeverbs.CompleteSend(qp.Num(), 1, 0)
	n, err = qp.PostSend(reads(r.mr, 8, 2))
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, 1, n)
	for range 8 {
		fakeverbs.CompleteSend(qp.Num(), 1, 0)
		r.poll()
	}
	require.Len(t, fakeverbs.Posted(), 9)
}

// TestSiwAdmissionInline: inline data are those of the time of posting.
func TestSiwAdmissionInline(t *testing.T) {
	r := admissionRig(t)
	data := r.mr.Bytes()
	copy(data[1000:], "left right")
	send := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendFence,
		SGL: []verbs.SGE{r.sge(1000, 4), r.sge(1005, 5)}}
	r.post(r.qp, append(reads(r.mr, 0, 1), send)...)
	clear(data)
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	r.poll()
	require.Equal(t, "leftright", string(fakeverbs.LastPosted()[0].Inline))
}

// TestSiwAdmissionSelfPoll: it goes on though nobody polls.
func TestSiwAdmissionSelfPoll(t *testing.T) {
	r := admissionRig(t)
	r.post(r.qp, reads(r.mr, 0, 40)...)
	for has := 2; has <= 40; has++ {
		require.Eventually(t, func() bool { return len(fakeverbs.Posted()) == has }, 10*time.Second,
			100*time.Microsecond)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	}
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	require.Len(t, r.poll(), 40)
}

// TestSiwAdmissionFlush: what waits when the QP fails is flushed, in its turn, and the device does
// not get it.
func TestSiwAdmissionFlush(t *testing.T) {
	for name, fail := range map[string]func(r *rig){
		"Modify": func(r *rig) {
			require.NoError(r, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		},
		"completion": func(r *rig) {
			fakeverbs.InjectWC(r.qp.Num(), false,
				fakeverbs.WC{WRID: fakeverbs.Posted()[0].WRID, Status: uint32(verbs.WCRemAccessErr)})
		},
		"Close": func(r *rig) { require.NoError(r, r.qp.Close()) },
		"release": func(r *rig) {
			fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Result: -int(syscall.EINVAL)})
			fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := admissionRig(t)
			r.post(r.qp, append(reads(r.mr, 0, 5), verbs.SendWR{ID: 5, Opcode: verbs.WRSend})...)
			fail(r)
			var wcs []verbs.WC
			require.Eventually(t, func() bool { wcs = append(wcs, r.poll()...); return len(wcs) == 6 }, 10*time.Second,
				time.Millisecond)
			require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, wcIDs(wcs))
			for _, wc := range wcs[1:] {
				require.Equal(t, verbs.WCWRFlushErr, wc.Status)
			}
			require.Len(t, fakeverbs.Posted(), 2)
		})
	}
}

// TestSiwAdmissionDepthLowered: the depth can turn out lower than what is unanswered already.
func TestSiwAdmissionDepthLowered(t *testing.T) {
	r := admissionRig(t)
	limit := r.qp.Provider().(verbs.ProviderQPLimiter)
	limit.SetDepths(4, 4)
	r.post(r.qp, reads(r.mr, 0, 4)...)
	limit.SetDepths(2, 4)
	r.post(r.qp, reads(r.mr, 4, 2)...)
	for _, has := range []int{4, 4, 4, 5, 6} {
		require.Len(t, fakeverbs.Posted(), has)
		fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
		r.poll()
	}
}

// TestSiwAdmissionCause: the doorbell fails because the connection has ended. How, others know
// better.
func TestSiwAdmissionCause(t *testing.T) {
	r := admissionRig(t)
	r.post(r.qp, reads(r.mr, 0, 5)...)
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 9, Result: -1, NoBadWR: true})
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	require.Equal(t, []uint64{0}, wcIDs(r.poll())[:1])
	r.qp.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateErr, syscall.ECONNRESET)
	require.ErrorIs(t, r.qp.Err(), syscall.ECONNRESET)
}

// TestSiwFullOutOfOrder: requests that the device has completed before an earlier one still take up
// room in the queue, so that their completions have room in the CQ.
func TestSiwFullOutOfOrder(t *testing.T) {
	r := admissionRig(t)
	qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	r.up(qp)
	r.post(qp, append(reads(r.mr, 9, 1), writes(r.mr, 3)...)...)
	posted := fakeverbs.Posted()
	for _, p := range posted[1:] {
		fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: p.WRID, Opcode: uint32(verbs.WCRDMAWrite)})
	}
	require.Empty(t, r.poll())
	_, err := qp.PostSend(writes(r.mr, 1))
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: posted[0].WRID, Opcode: uint32(verbs.WCRDMARead)})
	n, err := qp.PostSend(writes(r.mr, 5))
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, 4, n)
	require.Equal(t, []uint64{9, 0, 1, 2}, wcIDs(r.poll()))
}
