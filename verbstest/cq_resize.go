// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var cqResizeTests = []test{
	{"Idle", cqResizeIdle},
	{"Invalid", cqResizeInvalid},
	{"Keeps", cqResizeKeeps},
	{"BelowContents", cqResizeBelowContents},
	{"UnderTraffic", cqResizeUnderTraffic},
}

// resizes reports whether CQs can be resized, and requires that the device otherwise refuses it.
func (w *world) resizes() bool {
	w.Helper()
	cq := w.a.createCQ(verbs.CQConfig{CQE: 4})
	return !w.unless("cq-resize", cq.Resize(8))
}

func cqResizeIdle(w *world) outcome {
	if !w.resizes() {
		return noted
	}
	cq := w.a.createCQ(verbs.CQConfig{CQE: 10})
	for _, n := range []int{1, 7, 10, 1000, 3, 5000} {
		require.NoError(w, cq.Resize(n))
		require.GreaterOrEqual(w, cq.CQE(), n)
	}
	require.NoError(w, cq.Close())
	requireClosed(w.T, cq.Resize(10))
	return tested
}

func cqResizeInvalid(w *world) outcome {
	if !w.resizes() {
		return noted
	}
	cq := w.a.createCQ(verbs.CQConfig{CQE: 10})
	before := cq.CQE()
	for _, n := range []int{0, -1, math.MinInt} {
		requireErr(w.T, cq.Resize(n), verbs.ErrInvalid)
	}
	most := w.a.attr.MaxCQE
	requireLimit(w.T, cq.Resize(most+1), "max_cqe", uint64(most), uint64(most+1))
	require.Equal(w, before, cq.CQE())
	return tested
}

// cqResizeKeeps: completions in the queue stay there in order, and the new entries are usable.
func cqResizeKeeps(w *world) outcome {
	if !w.resizes() {
		return noted
	}
	p := w.pair(pairConfig{cqe: 4})
	for i := range 4 {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
	p.arrivedUnsignalled()
	require.NoError(w, p.a.scq.Resize(50))
	for i := range 46 {
		p.a.post(verbs.SendWR{ID: uint64(4 + i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
	for i := range 50 {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	}
	p.a.idle(p.a.scq)
	w.a.noFailure()
	p.works()
	return tested
}

// arrivedUnsignalled returns once everything that a sent has arrived and a knows it, without a
// completion in a's send queue.
func (p *pair) arrivedUnsignalled() {
	p.Helper()
	p.b.recv(1)
	p.a.post(verbs.SendWR{Opcode: verbs.WRSend})
	p.b.ok(p.b.received(), verbs.WCRecv)
	transfer(p.b, p.a, nil, nil) // follows b's acknowledgement
}

// cqResizeBelowContents: a queue never becomes smaller than its contents. It may be larger than
// requested.
func cqResizeBelowContents(w *world) outcome {
	if !w.resizes() {
		return noted
	}
	const small = 10
	count := w.a.createCQ(verbs.CQConfig{CQE: small}).CQE() + 20
	p := w.pair(pairConfig{cqe: count, cap: verbs.QPCap{MaxSendWR: count + 1}})
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
	p.arrivedUnsignalled()
	requireErr(w.T, p.a.scq.Resize(small), verbs.ErrInvalid)
	for i := range count {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	}
	require.NoError(w, p.a.scq.Resize(small))
	p.works()
	return tested
}

// cqResizeUnderTraffic: no completion is lost or swapped while others are added and polled.
func cqResizeUnderTraffic(w *world) outcome {
	if !w.resizes() {
		return noted
	}
	p := w.pair(pairConfig{cqe: 100})
	sizes := []int{100, 70, 300, 65, 1000}
	for i := range 500 {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGL: p.a.mem.sgl(0, 64), RemoteAddr: p.b.mem.at(0), RKey: p.b.mem.RKey()})
		if i%3 == 0 {
			require.NoError(w, p.a.scq.Resize(sizes[i%len(sizes)]))
		}
		if i >= 20 {
			require.EqualValues(w, i-20, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
		}
	}
	for i := 480; i < 500; i++ {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	}
	p.works()
	return tested
}
