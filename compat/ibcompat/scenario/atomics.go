// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// Row 6: the four atomics. Row 7: their alignment. Row 21: the depths that they use.
var atomics = []*Scenario{
	{Name: "row06/fetch-add", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 0xfffffffffffffffe)
		for i := range 3 {
			a.post(id(uint64(i)+1, verbs.FetchAdd(b.remote(0), 1, a.sge(8*i, 8))))
			a.sent(1)
		}
		a.words(0, 8, 16)
		b.words(0)
	}},
	{Name: "row06/cmp-swap", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 5)
		a.post(verbs.CmpSwap(b.remote(0), 5, 6, a.sge(0, 8)), verbs.CmpSwap(b.remote(0), 6, 1<<63, a.sge(8, 8)))
		a.sent(2)
		a.words(0, 8)
		b.words(0)
	}},
	{Name: "row06/masked-fetch-add", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 0x00ff_ffff_0000_00ff)
		// Fields of 8, 24 and 32 bits, which do not carry into each other.
		mask, err := ext.FieldMask(8, 24, 32)
		must(err)
		for i := range 3 {
			a.post(id(uint64(i)+1, a.masked(verbs.WRMaskedAtomicFetchAndAdd, i,
				[4]uint64{0x0101_0001_0000_0101, mask})))
			a.sent(1)
		}
		a.words(0, 8, 16)
		b.words(0)
	}},
	{Name: "row06/masked-cmp-swap", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 0x1122334455667788)
		for i, m := range [][4]uint64{{0x88, 0xff, 0xaa, 0xff}, {0x11 << 56, 0xff << 56, 0, 0xff},
			{0, 0, 1 << 63, 1 << 63}} {
			a.post(id(uint64(i)+1, a.masked(verbs.WRMaskedAtomicCmpAndSwp, i, m)))
			a.sent(1)
		}
		a.words(0, 8, 16)
		b.words(0)
	}},
	{Name: "row06/compares-not-equal", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 7)
		a.post(verbs.CmpSwap(b.remote(0), 5, 6, a.sge(0, 8)),
			id(2, a.masked(verbs.WRMaskedAtomicCmpAndSwp, 1, [4]uint64{0x10, 0xf0, 9, 0xff})))
		a.sent(2)
		a.words(0, 8)
		b.words(0)
	}},
	{Name: "row06/denied", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(0, 7)
		wr := a.masked(verbs.WRMaskedAtomicFetchAndAdd, 0, [4]uint64{1, 0})
		wr.RKey ^= 0x5a5a5a00
		a.post(wr)
		a.sent(1)
		b.words(0)
	}},
	{Name: "row06/contention",
		Reduced: "of 8 QPs that change one word: the sums, and that no original value came twice",
		run:     func(p *program) { contention(p, 8, 50) }},
	{Name: "row07/aligned", run: func(p *program) {
		a, b := p.pair(config{})
		b.putWord(8, 1)
		a.post(verbs.FetchAdd(b.remote(8), 1, a.sge(0, 8)))
		a.sent(1)
		b.words(0, 8)
	}},
	{Name: "row07/misaligned", run: func(p *program) {
		a, b := p.pair(config{})
		for i, off := range []int{1, 4, 7} {
			a.post(id(uint64(i)+1, verbs.FetchAdd(b.remote(off), 1, a.sge(0, 8))))
			a.post(id(uint64(i)+1, verbs.CmpSwap(b.remote(off), 0, 1, a.sge(0, 8))))
			wr := id(uint64(i)+1, a.masked(verbs.WRMaskedAtomicFetchAndAdd, 0, [4]uint64{1, 0}))
			wr.RemoteAddr += uint64(off)
			a.post(wr)
		}
		a.empty("sent", a.scq)
		a.post(id(9, verbs.FetchAdd(b.remote(0), 1, a.sge(0, 8)))) // the QP still works
		a.sent(1)
		b.memory(0, 16)
	}},
	{Name: "row21/depth", run: func(p *program) {
		a, b := p.pair(config{active: cm.ConnParam{InitiatorDepth: 1}, passive: cm.ConnParam{ResponderResources: 1}})
		b.put(0, "depth")
		for i := range 8 {
			a.post(id(uint64(2*i+1), verbs.Read(b.remote(0), a.sge(0, 5))),
				id(uint64(2*i+2), verbs.FetchAdd(b.remote(64), 1, a.sge(8, 8))))
		}
		a.sent(16)
		a.memory(0, 16)
		b.words(64)
	}},
	{Name: "row21/no-depth", run: func(p *program) {
		a, b := p.pair(config{active: cm.ConnParam{InitiatorDepth: cm.None}})
		for i, wr := range []verbs.SendWR{verbs.Read(b.remote(0), a.sge(0, 5)),
			verbs.FetchAdd(b.remote(64), 1, a.sge(8, 8)), verbs.CmpSwap(b.remote(64), 0, 1, a.sge(8, 8)),
			a.masked(verbs.WRMaskedAtomicFetchAndAdd, 8, [4]uint64{1, 0})} {
			a.post(id(uint64(i)+1, wr))
		}
		a.post(id(9, verbs.Write(b.remote(0), a.sge(0, 5))))
		a.sent(1)
		b.words(64)
	}},
}

// masked returns a masked atomic on the first word of the peer, whose original value is stored in
// the i-th word of the end. m holds addend and mask for a FetchAdd, and compare, its mask, swap and
// its mask for a CmpSwap.
func (e *end) masked(op verbs.WROpcode, i int, m [4]uint64) verbs.SendWR {
	at := e.peer.remote(0)
	if op == verbs.WRMaskedAtomicFetchAndAdd {
		return ext.MaskedFetchAddWR(at, m[0], m[1], e.sge(8*i, 8))
	}
	return ext.MaskedCmpSwapWR(at, m[0], m[1], m[2], m[3], e.sge(8*i, 8))
}

// contention makes n QPs add concurrently to one word, each to a field of its own and to a shared
// one.
func contention(p *program, n, ops int) {
	first, target := p.pair(config{})
	ends := []*end{first}
	for range n - 1 {
		a, _ := p.pair(config{})
		ends = append(ends, a)
	}
	mask, err := ext.FieldMask(16, 48)
	must(err)
	at := target.remote(0)
	var wg sync.WaitGroup
	found := make([][]uint64, n)
	errs := make([]error, n)
	for i, e := range ends {
		wg.Go(func() {
			for k := range ops {
				wr := verbs.FetchAdd(at, 1<<16|1, e.sge(0, 8))
				if k%2 == 1 {
					wr = ext.MaskedFetchAddWR(at, 1<<16|1, mask, wr.SGL...)
				}
				if _, errs[i] = e.qp.PostSend([]verbs.SendWR{wr}); errs[i] != nil {
					return
				}
				var wcs [1]verbs.WC
				if _, errs[i] = e.scq.Wait(e.ctx, wcs[:]); errs[i] == nil {
					errs[i] = wcs[0].Err()
				}
				if errs[i] != nil {
					return
				}
				found[i] = append(found[i], e.word(0))
			}
		})
	}
	wg.Wait()
	seen, grows := map[uint64]bool{}, true
	for i := range ends {
		p.fact(fmt.Sprintf("connection %d", i), "%d done, %v", len(found[i]), errs[i])
		last := uint64(0)
		for k, v := range found[i] {
			grows = grows && (k == 0 || v>>16 > last>>16)
			last, seen[v>>16] = v, true
		}
	}
	p.fact("original values", "%d different, growing %v", len(seen), grows)
	target.words(0)
}
