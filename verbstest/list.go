// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var listTests = []test{
	{"Send", listSend},
	{"Reuse", listReuse},
	{"Empty", listEmpty},
	{"BadSend", listBadSend},
	{"BadReceive", listBadReceive},
	{"Concurrent", listConcurrent},
}

func listSend(w *world) outcome {
	p := w.pair(pairConfig{})
	const count = 40
	recvs, sends := make([]verbs.RecvWR, count), make([]verbs.SendWR, count)
	for i := range count {
		recvs[i] = verbs.RecvWR{ID: uint64(i), SGL: p.b.mem.sgl(i*100, 100)}
		sends[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGL: p.a.mem.sgl(i, 100)}
	}
	n, err := p.b.qp.PostRecv(recvs)
	require.NoError(w, err)
	require.Equal(w, count, n)
	p.a.post(sends...)
	for i := range count {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		p.b.mem.holds(i*100, p.a.mem.Bytes()[i:i+100])
	}
	return tested
}

// listReuse: the list, its elements and the SGLs are not used after the post.
func listReuse(w *world) outcome {
	p := w.pair(pairConfig{})
	recvs, sends := make([]verbs.RecvWR, 1), make([]verbs.SendWR, 1)
	rsgl, ssgl := make([]verbs.SGE, 1), make([]verbs.SGE, 1)
	for i := range 20 {
		rsgl[0], ssgl[0] = p.b.mem.sge(i*100, 100), p.a.mem.sge(i, 100)
		recvs[0] = verbs.RecvWR{ID: uint64(i), SGL: rsgl}
		n, err := p.b.qp.PostRecv(recvs)
		require.NoError(w, err)
		require.Equal(w, 1, n)
		rsgl[0], recvs[0] = verbs.SGE{Addr: 1, Length: 1 << 31, LKey: 1}, verbs.RecvWR{ID: 999}
		sends[0] = verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: ssgl}
		p.a.post(sends...)
		ssgl[0], sends[0] = verbs.SGE{Addr: 1, Length: 1 << 31, LKey: 1}, verbs.SendWR{ID: 999, Opcode: 255}
	}
	for i := range 20 {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		p.b.mem.holds(i*100, p.a.mem.Bytes()[i:i+100])
	}
	return tested
}

func listEmpty(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, wrs := range [][]verbs.SendWR{nil, {}} {
		n, err := p.a.qp.PostSend(wrs)
		require.NoError(w, err)
		require.Zero(w, n)
	}
	for _, wrs := range [][]verbs.RecvWR{nil, {}} {
		n, err := p.a.qp.PostRecv(wrs)
		require.NoError(w, err)
		require.Zero(w, n)
	}
	p.works()
	return tested
}

// listBadSend: requests before an invalid one are executed, those after it are not.
func listBadSend(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, bad := range []int{0, 1, 4} {
		good := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
		wrs := []verbs.SendWR{good, good, good, good, good}
		for i := range wrs {
			wrs[i].ID = uint64(i)
			p.b.recv(uint64(i))
		}
		wrs[bad].Opcode = 255
		n, err := p.a.qp.PostSend(wrs)
		require.Equal(w, bad, n)
		requireErr(w.T, err, verbs.ErrInvalid)
		require.ErrorContains(w, err, fmt.Sprintf("request %d", bad))
		for i := range bad {
			require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
			require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		}
		p.a.idle(p.a.scq)
		for i := bad; i < len(wrs); i++ { // use up the remaining receives
			p.a.ok(p.a.run(good), verbs.WCSend)
			require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		}
	}
	return tested
}

func listBadReceive(w *world) outcome {
	p := w.pair(pairConfig{})
	tooMany := make([]verbs.SGE, p.b.qp.Cap().MaxRecvSGE+1)
	n, err := p.b.qp.PostRecv([]verbs.RecvWR{{ID: 1}, {ID: 2}, {ID: 3, SGL: tooMany}, {ID: 4}})
	require.Equal(w, 2, n)
	requireLimit(w.T, err, "max_recv_sge", uint64(len(tooMany)-1), uint64(len(tooMany)))
	require.ErrorContains(w, err, "request 2")
	for id := 1; id <= 2; id++ {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, id, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	p.works()
	return tested
}

// listConcurrent: lists posted from several goroutines are not interleaved.
func listConcurrent(w *world) outcome {
	const posters, lists, length = 4, 10, 4
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: posters * lists * length, MaxRecvWR: posters * lists * length}})
	for range posters * lists * length {
		p.b.recv(0, p.b.mem.sge(0, 8))
	}
	errs := make(chan error, posters)
	for k := range posters {
		go func() {
			for l := range lists {
				wrs := make([]verbs.SendWR, length)
				for i := range wrs {
					wrs[i] = verbs.SendWR{ID: uint64(k<<16 | l<<8 | i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
				}
				if n, err := p.a.qp.PostSend(wrs); err != nil || n != length {
					errs <- fmt.Errorf("posted %d: %w", n, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range posters {
		require.NoError(w, closes(w.T, errs, "a poster"))
	}
	next := make([]int, posters)
	for range posters * lists {
		first := p.a.ok(p.a.sent(), verbs.WCSend).ID
		k := int(first >> 16)
		require.EqualValues(w, k<<16|next[k]<<8, first, "lists of one goroutine in order")
		next[k]++
		for i := 1; i < length; i++ {
			require.EqualValues(w, first+uint64(i), p.a.ok(p.a.sent(), verbs.WCSend).ID)
		}
	}
	return tested
}
