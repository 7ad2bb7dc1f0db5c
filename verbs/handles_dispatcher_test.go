// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// stubDispatcher is a dispatcher whose completions the test makes.
type stubDispatcher struct {
	*testing.T
	*Dispatcher
	s      *stub
	qp     *QP
	others []uint64 // the wr_ids that were not the dispatcher's
}

func newStubDispatcher(t *testing.T) *stubDispatcher {
	s, ctx := newStub(t)
	d := &stubDispatcher{T: t, s: s, qp: newStubQP(t, s, ctx, QPConfig{})}
	var err error
	d.Dispatcher, err = NewDispatcher(d.qp.SendCQ(),
		DispatcherConfig{Other: func(wc *WC) { d.others = append(d.others, wc.ID) }})
	require.NoError(t, err)
	return d
}

// complete has the dispatcher take completions with these wr_ids.
func (d *stubDispatcher) complete(ids ...uint64) {
	d.Helper()
	below := d.qp.SendCQ().Provider().(stubDriver)
	for _, id := range ids {
		below.queue = append(below.queue, WC{ID: id})
	}
	below.sleep = context.Canceled // there is nothing else
	require.ErrorIs(d, d.Dispatcher.Run(context.Background()), context.Canceled)
}

// TestDispatcherStrangers: a completion is that of a request only while the request is outstanding,
// and only with its wr_id.
func TestDispatcherStrangers(t *testing.T) {
	d := newStubDispatcher(t)
	var done []uint64
	post := func(id uint64) uint64 {
		n, err := d.PostSend(d.qp, []SendWR{{ID: id, Opcode: WRSend}}, func(wc *WC) { done = append(done, wc.ID) })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		return d.s.ids[0]
	}
	const generation = 1 << 32
	first := post(7)
	slot := first % generation
	d.complete(slot, first+generation, first-generation, uint64(d.CQ().CQE()), first-slot+uint64(d.CQ().CQE()),
		math.MaxUint64)
	require.Empty(t, done, "small numbers, other generations, and indexes beyond the table are those of strangers")
	require.Len(t, d.others, 6)
	require.Equal(t, 1, d.Outstanding())
	d.complete(first)
	require.Equal(t, []uint64{7}, done)
	require.Zero(t, d.Outstanding())
	d.complete(first, first+generation)
	require.Equal(t, []uint64{7}, done, "nothing is outstanding")
	second := post(8)
	require.Equal(t, slot, second%generation)
	d.complete(first)
	require.Equal(t, []uint64{7}, done, "a late completion of another request that had the same place")
	d.complete(second)
	require.Equal(t, []uint64{7, 8}, done)
	require.Len(t, d.others, 9)
}

// TestDispatcherLists: the table can be filled to the last entry; lists are used again and keep
// nothing of the program.
func TestDispatcherLists(t *testing.T) {
	d := newStubDispatcher(t)
	srq, err := d.qp.PD().CreateSRQ(SRQAttr{})
	require.NoError(t, err)
	all := d.CQ().CQE()
	ignore := func(*WC) {}
	sgl := make([]SGE, 1)
	for name, post := range map[string]func(n int) (int, error){
		"PostSend": func(n int) (int, error) {
			wrs := make([]SendWR, n)
			for i := range wrs {
				wrs[i] = SendWR{Opcode: WRSend, SGL: sgl}
			}
			return d.PostSend(d.qp, wrs, ignore)
		},
		"PostRecv": func(n int) (int, error) {
			wrs := make([]RecvWR, n)
			for i := range wrs {
				wrs[i].SGL = sgl
			}
			return d.PostRecv(d.qp, wrs, ignore)
		},
		"PostSRQRecv": func(n int) (int, error) {
			wrs := make([]RecvWR, n)
			for i := range wrs {
				wrs[i].SGL = sgl
			}
			return d.PostSRQRecv(srq, wrs, ignore)
		},
	} {
		at := map[string]string{"PostSRQRecv": "SRQ.PostRecv"}[name]
		if at == "" {
			at = name
		}
		d.s.reached()
		_, err := post(all + 1)
		require.ErrorIs(t, err, ErrQueueFull, name)
		require.ErrorContains(t, err, "Dispatcher."+name)
		require.Empty(t, d.s.reached())
		d.s.refuse = ErrState
		n, err := post(all)
		require.ErrorIs(t, err, ErrState, name)
		require.ErrorContains(t, err, "Dispatcher."+name+" on stub")
		require.Zero(t, n)
		require.Zero(t, d.Outstanding(), "what was refused is not outstanding")
		d.s.refuse = nil
		d.s.reached()
		for range 2 {
			n, err = post(all / 2)
			require.NoError(t, err, name)
			require.Equal(t, all/2, n)
			require.Equal(t, []string{fmt.Sprintf("%s %d", at, all/2)}, d.s.reached())
		}
		require.Equal(t, all, d.Outstanding())
		_, err = post(1)
		require.ErrorIs(t, err, ErrQueueFull, name)
		for i := range d.entries {
			d.complete(uint64(d.entries[i].gen)<<32 | uint64(i))
		}
		require.Zero(t, d.Outstanding(), name)
	}
	require.Empty(t, d.others)
	require.Len(t, d.sends, 1, "one list is enough")
	require.Len(t, d.recvs, 1)
	for _, wr := range d.sends[0][:all/2] {
		require.Nil(t, wr.SGL)
	}
	for _, wr := range d.recvs[0][:all/2] {
		require.Nil(t, wr.SGL)
	}
}

// TestDispatcherReserve: entries can be reserved to the last.
func TestDispatcherReserve(t *testing.T) {
	d := newStubDispatcher(t)
	all := d.CQ().CQE()
	require.ErrorIs(t, d.Reserve(-1), ErrInvalid)
	require.ErrorIs(t, d.Reserve(all+1), ErrLimit)
	require.NoError(t, d.Reserve(0))
	require.NoError(t, d.Reserve(all))
	require.ErrorIs(t, d.Reserve(1), ErrLimit)
	d.Release(3)
	require.ErrorIs(t, d.Reserve(4), ErrLimit)
	require.NoError(t, d.Reserve(3))
}

// TestPoolChecks: the numbers of a pool's buffers and their size.
func TestPoolChecks(t *testing.T) {
	s, ctx := newStub(t)
	ctx.attr.MaxMRSize = 4096
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	for _, c := range []struct {
		size, count int
		want        error // nil = right
	}{{1, 1, nil}, {64, 64, nil}, {1, 64, nil}, {4096, 1, nil}, {2048, 2, nil}, {0, 1, ErrInvalid}, {1, 0, ErrInvalid},
		{-1, 1, ErrInvalid}, {1, -1, ErrInvalid}, {1, 65, ErrLimit}, {64, 65, ErrLimit}, {65, 64, ErrLimit},
		{4097, 1, ErrLimit}, {2049, 2, ErrLimit},
		{math.MaxInt, 1, ErrLimit}, {1, math.MaxInt, ErrLimit}, {math.MaxInt, math.MaxInt, ErrLimit}} {
		p, err := pd.AllocPool(c.size, c.count, AccessLocalWrite)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, "%d of %d", c.count, c.size)
			require.Zero(t, s.made["MR"])
			continue
		}
		require.NoError(t, err, "%d of %d", c.count, c.size)
		require.Equal(t, c.count, p.Count())
		require.Equal(t, c.size, p.Size())
		b, err := p.Get(t.Context())
		require.NoError(t, err)
		require.Len(t, b.Bytes(), c.size)
		require.Contains(t, fmt.Sprint(p), fmt.Sprintf("size=%d count=%d out=1", c.size, c.count))
		require.Contains(t, fmt.Sprint(b), fmt.Sprintf("size=%d", c.size))
		for _, in := range [][2]int{{0, c.size}, {c.size, 0}, {c.size - 1, 1}} {
			sge, err := b.SGE(in[0], in[1])
			require.NoError(t, err, "%v", in)
			require.Equal(t, SGE{Addr: p.MR().Addr() + uint64(b.Offset()+in[0]), Length: uint32(in[1]), LKey: 1}, sge)
		}
		for _, out := range [][2]int{{-1, 1}, {0, -1}, {0, c.size + 1}, {c.size, 1}, {c.size + 1, 0},
			{c.size + 1, -1}} {
			_, err := b.SGE(out[0], out[1])
			require.ErrorIs(t, err, ErrBounds, "%v", out)
		}
		require.ErrorIs(t, p.Close(), ErrBusy)
		require.NoError(t, p.Put(b))
		require.ErrorIs(t, p.Put(b), ErrInvalid)
		require.NoError(t, p.Close())
		for range 2 {
			_, err = p.Get(t.Context())
			require.ErrorIs(t, err, ErrClosed)
		}
	}
	for _, none := range []any{(*Pool)(nil), new(Pool), Buffer{}} {
		require.NotContains(t, fmt.Sprint(none), "size=", "%T", none)
		require.NotEmpty(t, fmt.Sprint(none))
	}
	_, err = Buffer{}.SGE(0, 0)
	require.ErrorIs(t, err, ErrInvalid)
	ctx.attr.MaxMRSize = math.MaxUint64
	_, err = pd.AllocPool(1, 1<<31+1, AccessLocalWrite)
	require.ErrorIs(t, err, ErrLimit, "numbers of buffers have 31 bits")
	require.NoError(t, pd.Close())
	s.closed(t, ctx)
}
