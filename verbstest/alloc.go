// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// Posting and polling must not allocate on success. Under the race detector the same calls are
// made, but allocations are not counted.
var allocTests = []test{
	{"Post", allocPost},
	{"PollAndRecv", allocPollAndRecv},
}

// allocates requires that f, which is called runs+1 times, does not allocate.
func (w *world) allocates(what string, runs int, f func()) {
	w.Helper()
	n := testing.AllocsPerRun(runs, f)
	if !w.iwarp() && (w.siwBelow(w.f.Active) || w.siwBelow(w.f.Passive)) {
		// The device's goroutines wait in the kernel while the program does not, and that
		// allocates.
		w.without("alloc-free progress")
		return
	}
	if !race.Enabled {
		require.Zero(w, n, "allocations of %s", what)
	}
}

// allocPost posts one request of every kind that completes without the peer's program, and polls
// its completion.
func allocPost(w *world) outcome {
	p := w.pair(pairConfig{})
	sgl := p.a.mem.sgl(0, 64)
	word := p.a.mem.sgl(64, 8)
	inline := min(64, p.a.qp.Cap().MaxInlineData)
	to := verbs.SendWR{RemoteAddr: p.b.mem.at(0), RKey: p.b.mem.RKey(), Flags: verbs.SendSignaled}
	type kind struct {
		name string
		op   verbs.Op
		wr   verbs.SendWR
	}
	kinds := []kind{
		{"Write", verbs.OpWrite, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sgl}},
		{"inline Write", verbs.OpWrite,
			verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, SGL: p.a.mem.sgl(0, inline)}},
		{"Read", verbs.OpRead, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: sgl}},
		{"FetchAdd", verbs.OpFetchAdd, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGL: word}},
		{"masked CmpSwap", verbs.OpMaskedCmpSwap, verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, SGL: word}},
	}
	var wcs [4]verbs.WC
	list := make([]verbs.SendWR, 1)
	for _, k := range kinds {
		if !w.has(k.op) {
			continue
		}
		list[0] = k.wr
		list[0].RemoteAddr, list[0].RKey, list[0].Flags = to.RemoteAddr, to.RKey, k.wr.Flags|to.Flags
		failed := ""
		one := func() {
			if n, err := p.a.qp.PostSend(list); n != 1 || err != nil {
				failed = "post"
			}
			deadline := time.Now().Add(waitLimit)
			for {
				n, err := p.a.scq.Poll(wcs[:])
				if n == 1 && wcs[0].Status == verbs.WCSuccess {
					return
				}
				if n != 0 || err != nil || time.Now().After(deadline) {
					failed = "completion"
					return
				}
				time.Sleep(10 * time.Microsecond)
			}
		}
		for range 70 {
			one() // queues first grow to their final size
		}
		w.allocates(k.name, 100, one)
		require.Empty(w, failed, k.name)
	}
	return tested
}

// allocPollAndRecv posts receives, sends into them, and polls both sides. Each is counted
// separately.
func allocPollAndRecv(w *world) outcome {
	p := w.pair(pairConfig{})
	const runs = 50 // AllocsPerRun calls its function once more
	recvs := []verbs.RecvWR{{ID: 1, SGL: p.b.mem.sgl(0, 64)}}
	sends := []verbs.SendWR{{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 64)}}
	var wcs [1]verbs.WC
	for range 3 {
		bad := 0
		w.allocates("PostRecv", runs, func() {
			if n, err := p.b.qp.PostRecv(recvs); n != 1 || err != nil {
				bad++
			}
		})
		w.allocates("PostSend", runs, func() {
			if n, err := p.a.qp.PostSend(sends); n != 1 || err != nil {
				bad++
			}
		})
		deadline := time.Now().Add(waitLimit)
		w.allocates("Poll", runs, func() {
			for _, cq := range []*verbs.CQ{p.a.scq, p.b.rcq} {
				n, err := cq.Poll(wcs[:])
				for n == 0 && err == nil && time.Now().Before(deadline) {
					time.Sleep(10 * time.Microsecond)
					n, err = cq.Poll(wcs[:])
				}
				if n != 1 || err != nil || wcs[0].Status != verbs.WCSuccess {
					bad++
				}
			}
		})
		w.allocates("Poll of an empty CQ", runs, func() {
			if n, err := p.a.scq.Poll(wcs[:]); n != 0 || err != nil {
				bad++
			}
		})
		require.Zero(w, bad)
	}
	return tested
}
