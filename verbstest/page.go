// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Short messages whose memory crosses a page boundary: drivers copy them into the packet with
// separate code.
var pageTests = []test{
	{"Read", pageRead},
	{"WriteBehindReads", pageWriteBehindReads},
	{"SendBehindReads", pageSendBehindReads},
	{"ReadUnknownKey", func(w *world) outcome {
		pageReadFails(w, false, 1, fault{0, 1, 0x00, verbs.WCRemAccessErr})
		return tested
	}},
	{"ReadPastEnd", func(w *world) outcome {
		pageReadFails(w, true, 0, fault{0, 1, 0x01, verbs.WCRemAccessErr})
		return tested
	}},
}

const (
	pageSize  = 4096 // every boundary between larger pages is also one of these
	pageShort = 40   // the longest message here
)

// pages returns memory and the offset at which its second page begins.
func (h *host) pages() (m *mem, edge int) {
	m = h.alloc(3*pageSize, allRights)
	return m, 2*pageSize - int(m.Addr()%pageSize)
}

// pageRead reads at every offset around a boundary, with all Reads of one length in one list.
func pageRead(w *world) outcome {
	p := w.pair(pairConfig{})
	src, edge := w.b.pages()
	dst := w.a.alloc(pageSize, verbs.AccessLocalWrite)
	for n := 2; n <= pageShort; n++ {
		src.fill(byte(n))
		var wrs []verbs.SendWR
		for first := 1; first < n; first++ {
			wr := read(dst.sgl(64*first, n), src, edge-first)
			wr.ID, wr.Flags = uint64(first), verbs.SendSignaled
			wrs = append(wrs, wr)
		}
		p.a.post(wrs...)
		for first := 1; first < n; first++ {
			wc := p.a.ok(p.a.sent(), verbs.WCRDMARead)
			require.EqualValues(w, first, wc.ID)
			require.EqualValues(w, n, wc.ByteLen)
			dst.holds(64*first, src.Bytes()[edge-first:][:n])
		}
	}
	p.a.idle(p.a.scq)
	return tested
}

// behindReads creates a pair and posts lists that begin with more Reads than may be in progress, so
// that the messages after them are sent later than they are posted. message returns one of n bytes
// at off of src, the kth of the list.
func behindReads(w *world, op verbs.WCOpcode, message func(p *pair, k int, src *mem, off, n int) verbs.SendWR,
	arrived func(p *pair, k int, want []byte)) {
	const reads = 3
	p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: 1}, bParam: cm.ConnParam{ResponderResources: 1}})
	src, edge := w.a.pages()
	back := w.a.alloc(scratch, verbs.AccessLocalWrite)
	for n := 2; n <= pageShort; n++ {
		src.fill(byte(n))
		var wrs []verbs.SendWR
		for range reads {
			wrs = append(wrs, read(back.sgl(0, scratch), p.b.mem, 0))
		}
		for first := 1; first < n; first++ {
			wr := message(p, first, src, edge-first, n)
			wr.ID, wr.Flags = uint64(first), verbs.SendSignaled
			wrs = append(wrs, wr)
		}
		p.a.post(wrs...)
		for first := 1; first < n; first++ {
			require.EqualValues(w, first, p.a.ok(p.a.sent(), op).ID)
		}
		for first := 1; first < n; first++ {
			arrived(p, first, src.Bytes()[edge-first:][:n])
		}
	}
}

func pageWriteBehindReads(w *world) outcome {
	dst := w.b.alloc(pageSize, allRights)
	behindReads(w, verbs.WCRDMAWrite, func(_ *pair, k int, src *mem, off, n int) verbs.SendWR {
		return write(src.sgl(off, n), dst, 64*k)
	}, func(p *pair, k int, want []byte) {
		if k == 1 {
			p.settle()
		}
		dst.holds(64*k, want)
	})
	return tested
}

func pageSendBehindReads(w *world) outcome {
	dst := w.b.alloc(pageSize, verbs.AccessLocalWrite)
	behindReads(w, verbs.WCSend, func(p *pair, k int, src *mem, off, n int) verbs.SendWR {
		p.b.recv(uint64(k), dst.sge(64*k, 64))
		return verbs.SendWR{Opcode: verbs.WRSend, SGL: src.sgl(off, n)}
	}, func(p *pair, k int, want []byte) {
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, k, wc.ID)
		require.EqualValues(w, len(want), wc.ByteLen)
		dst.holds(64*k, want)
	})
	return tested
}

// pageReadFails reads across a boundary, or beyond the last page of a region, with a key that
// differs by flip: that is one failure.
func pageReadFails(w *world, past bool, flip uint32, f fault) {
	for _, n := range []int{24, pageShort} {
		p := w.pair(pairConfig{})
		src, edge := w.b.pages()
		if past {
			edge = src.Len()
		}
		dst := w.a.alloc(pageSize, verbs.AccessLocalWrite)
		rest := dst.keepsBut(0, 2*n)
		good := read(dst.sgl(0, n), src, 0)
		bad := read(dst.sgl(n, n), src, edge-8)
		bad.RKey ^= flip
		good.ID, bad.ID = 1, 2
		good.Flags, bad.Flags = verbs.SendSignaled, verbs.SendSignaled
		p.a.ok(p.a.run(good), verbs.WCRDMARead)
		after := good
		after.ID = 3
		p.a.post(bad, after)
		wc := p.a.sent()
		require.EqualValues(w, 2, wc.ID)
		p.refusal(wc, f, false)
		p.a.flushed(p.a.scq, 3)
		p.broken(p.a, p.b, f)
		rest()
	}
}
