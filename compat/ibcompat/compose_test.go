// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

func TestWrap(t *testing.T) {
	_, err := ibcompat.Wrap(verbs.NewDevice(strange{}), ibcompat.Config{})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	var missing *ibcompat.TransportError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "usnic0", missing.Device)
	require.Equal(t, verbs.TransportUSNIC, missing.Transport)
	require.ErrorContains(t, err, "usnic0")
	for _, none := range []*verbs.Device{nil, new(verbs.Device)} {
		_, err = ibcompat.Wrap(none, ibcompat.Config{})
		require.ErrorIs(t, err, verbs.ErrNoDevice)
	}

	in, dev := newRoCE(t)
	require.Equal(t, "ib:roce0", dev.Name())
	require.Equal(t, "ibcompat", dev.Info().Provider)
	require.Equal(t, in.Info().Transport, dev.Info().Transport)

	in, dev = newIWARP(t, 0, ibcompat.Config{})
	require.Equal(t, "ib:"+in.Name(), dev.Name())
	require.Equal(t, "ibcompat", dev.Info().Provider)
	require.Equal(t, verbs.TransportIB, dev.Info().Transport)
}

// strange is a device with another transport.
type strange struct{ verbs.ProviderDevice }

func (strange) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: "usnic0", Transport: verbs.TransportUSNIC}
}

func TestSupport(t *testing.T) {
	in, dev := newRoCE(t)
	inner, outer := newEnd(t, open(t, in), verbs.QPConfig{}), newEnd(t, open(t, dev), verbs.QPConfig{})
	for _, c := range []struct {
		qp   *verbs.QP
		op   verbs.Op
		want ext.Support
		why  string
	}{
		{inner.qp, verbs.OpMaskedCmpSwap, ext.None, "roce0 does not have masked-cmp-swap"},
		{inner.qp, verbs.OpCmpSwap, ext.Native, "roce0 has cmp-swap"},
		{outer.qp, verbs.OpMaskedCmpSwap, ext.Composed,
			"roce0 has no masked-cmp-swap, but cmp-swap, which is repeated until it succeeds"},
		{outer.qp, verbs.OpMaskedFetchAdd, ext.Composed,
			"roce0 has no masked-fetch-add, but cmp-swap, which is repeated until it succeeds"},
		{outer.qp, verbs.OpCmpSwap, ext.Native, "ib:roce0 has cmp-swap"},
		{outer.qp, verbs.OpBindMW, ext.Native, "ib:roce0 has bind-mw"},
	} {
		s, why := ibcompat.Support(c.qp, c.op)
		require.Equal(t, c.want, s, c.op)
		require.Equal(t, c.why, why)
		require.Equal(t, c.want, ext.SupportOf(c.qp.Context(), c.op))
	}
}

// TestMasked compares masked atomics with their definition, using random operands. The first guess
// is right, or wrong because something else has changed the word.
func TestMasked(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	rng := rand.New(rand.NewPCG(12, 6))
	some := func() uint64 { return rng.Uint64() & []uint64{0xff, ^uint64(0), 1 << 63}[rng.IntN(3)] }
	v := uint64(0)
	for i := range 300 {
		if rng.IntN(3) == 0 {
			v = some()
			b.put(64, v)
		}
		var wr verbs.SendWR
		var next uint64
		want := verbs.WCMaskedFetchAdd
		if rng.IntN(2) == 0 {
			x, mask := some(), some()
			wr, next = ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, x, mask), ext.MaskedFetchAdd(v, x, mask)
		} else {
			compare, compareMask, swap, swapMask := v, some(), some(), some()
			if rng.IntN(2) == 0 {
				compare = some()
			}
			wr = ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, compare, compareMask, swap, swapMask)
			next, want = ext.MaskedCmpSwap(v, compare, compareMask, swap, swapMask), verbs.WCMaskedCompSwap
		}
		wr.ID = uint64(i)
		a.post(a.on(wr, 8, b, 64))
		require.Equal(t, verbs.WC{ID: wr.ID, Opcode: want, ByteLen: 8, QPNum: a.qp.Num()}, a.wait())
		require.Equal(t, v, a.word(8), "the original value")
		require.Equal(t, next, b.word(64))
		require.Zero(t, b.word(56)|b.word(72)|a.word(0)|a.word(16), "and nothing else")
		v = next
	}
}

// TestList checks that masked atomics are executed and completed in order with the requests before
// and after them.
func TestList(t *testing.T) {
	for _, sigAll := range []bool{false, true} {
		_, dev := newRoCE(t)
		a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{SigAll: sigAll})
		for round := range 20 {
			b.recv(70)
			b.recv(71)
			a.put(0, 500+uint64(round)) // overwrites the word
			b.put(64, 100)
			plus := ext.FetchAddWR(verbs.Remote{Length: 8}, 10)
			read := a.on(verbs.SendWR{Opcode: verbs.WRRDMARead}, 40, b, 64)
			write := verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: a.sgl(0, 8), RemoteAddr: read.RemoteAddr,
				RKey: read.RKey}
			list := []verbs.SendWR{
				{Opcode: verbs.WRSend, SGL: a.sgl(0, 8), Flags: verbs.SendSignaled},
				a.on(add, 8, b, 64),   // 100 -> 101
				write,                 // 500
				a.on(plus, 16, b, 64), // 500 -> 510
				a.on(swap, 24, b, 64), // 510 -> 0x107
				a.on(add, 32, b, 64),  // 0x107 -> 0x108
				read,
				{Opcode: verbs.WRSend, SGL: a.sgl(0, 8), Flags: verbs.SendSignaled | verbs.SendFence},
			}
			var want []uint64
			for i := range list {
				if list[i].ID = uint64(i); i == 5 {
					list[i].Flags = 0
				}
				if sigAll || list[i].Flags&verbs.SendSignaled != 0 {
					want = append(want, uint64(i))
				}
			}
			a.post(list...)
			a.ends(verbs.WCSuccess, want...)
			b.ends(verbs.WCSuccess, 70, 71)
			first := 500 + uint64(round)
			last := (first+10)&^0xff | 7
			for off, v := range map[int]uint64{8: 100, 16: first, 24: first + 10, 32: last, 40: last + 1} {
				require.Equal(t, v, a.word(off), "at %d", off)
			}
			require.Equal(t, last+1, b.word(64))
		}
	}
}

// TestContention makes eight connections change one word, each a field of its own and a shared
// field. No change is lost, and the original values of the shared field are all different.
func TestContention(t *testing.T) {
	_, dev := newRoCE(t)
	ctx, passive := open(t, dev), open(t, dev)
	const peers, rounds = 8, 40
	var ends, targets [peers]*end
	for i := range ends {
		ends[i], targets[i] = connect(t, ctx, passive, verbs.QPConfig{})
	}
	// A single word for all: every target registers the same memory.
	mem := targets[0].mr.Bytes()
	old := make([]map[uint64]bool, peers)
	var wg sync.WaitGroup
	for i, a := range ends {
		mr, err := targets[i].pd.RegMR(mem, allRights)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.Close()) })
		old[i] = make(map[uint64]bool)
		wg.Go(func() {
			wr := a.on(ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, 1<<32|1<<(4*i), 0x8000_0000_8888_8888), 8,
				targets[i], 64)
			wr.RKey, wr.RemoteAddr = mr.RKey(), mr.Addr()+64
			for range rounds {
				a.post(wr)
				a.ends(verbs.WCSuccess, 0)
				old[i][a.word(8)>>32] = true
			}
		})
	}
	wg.Wait()
	want := uint64(peers * rounds << 32)
	for i := range peers {
		want |= rounds % 16 << (4 * i)
	}
	require.Equal(t, want, targets[0].word(64))
	all := make(map[uint64]bool)
	for i := range old {
		require.Len(t, old[i], rounds)
		maps.Copy(all, old[i])
	}
	require.Len(t, all, peers*rounds, "the original values of the common field are all different")
}

// TestSharedSink checks that connections that share a sink, because they ignore the original
// values, do not mistake each other's answers for their own.
func TestSharedSink(t *testing.T) {
	_, dev := newRoCE(t)
	ctx, passive := open(t, dev), open(t, dev)
	const peers, rounds = 4, 100
	var ends, targets [peers]*end
	var wg sync.WaitGroup
	for i := range ends {
		ends[i], targets[i] = connect(t, ctx, passive, verbs.QPConfig{})
		mr, err := ends[i].pd.RegMR(ends[0].mr.Bytes(), allRights)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.Close()) })
		sge, err := mr.SGE(8, 8)
		require.NoError(t, err)
		wg.Go(func() {
			wr := ends[i].on(add, 8, targets[i], 64)
			wr.SGL = []verbs.SGE{sge}
			for n := range rounds {
				targets[i].put(64, uint64(i*1000+n)) // make each guess wrong
				ends[i].post(wr)
				ends[i].ends(verbs.WCSuccess, 0)
				if got := targets[i].word(64); got != uint64(i*1000+n+1) {
					t.Errorf("%d is %d", i*1000+n, got)
				}
			}
		})
	}
	wg.Wait()
}

// TestProgress checks that composing continues although the program does not poll, and that the
// requests that wait for it are posted.
func TestProgress(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	b.put(64, 41)
	b.recv(1)
	quiet := a.on(add, 8, b, 64)
	quiet.Flags = 0
	a.post(quiet, quiet, verbs.SendWR{Opcode: verbs.WRSend, SGL: a.sgl(0, 8)})
	b.ends(verbs.WCSuccess, 1)
	require.EqualValues(t, 43, b.word(64))
	var wcs [1]verbs.WC
	n, err := a.cq.Poll(wcs[:])
	require.NoError(t, err)
	require.Zero(t, n, "nothing was signalled")
}

// TestWake checks that CQ.Wait and the channel wake a program for a masked atomic that takes
// several inner requests.
func TestWake(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	done := make(chan verbs.WC)
	go func() {
		var wcs [1]verbs.WC
		_, _ = a.cq.Wait(soon(t), wcs[:])
		done <- wcs[0]
	}()
	time.Sleep(time.Millisecond) // it is probably asleep by now; the result is the same if not
	b.put(64, 3)
	wr := a.on(swap, 8, b, 64)
	wr.ID = 9
	a.post(wr)
	wc := <-done
	require.EqualValues(t, 9, wc.ID)
	require.NoError(t, wc.Err())
}

// TestFailures checks that a failed masked atomic completes with the device's status, and that
// later requests are flushed.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *end, wr *verbs.SendWR)
		want   verbs.WCStatus
	}{
		"RKey":     {func(_, _ *end, wr *verbs.SendWR) { wr.RKey ^= 0x5500 }, verbs.WCRemAccessErr},
		"Bounds":   {func(_, b *end, wr *verbs.SendWR) { wr.RemoteAddr = b.mr.Addr() + 4096 }, verbs.WCRemAccessErr},
		"Sink":     {func(a, _ *end, wr *verbs.SendWR) { wr.SGL[0].LKey ^= 0x5500 }, verbs.WCLocProtErr},
		"SinkEnd":  {func(a, _ *end, wr *verbs.SendWR) { wr.SGL[0].Addr = a.mr.Addr() + 4089 }, verbs.WCLocProtErr},
		"SinkOfPD": {func(a, b *end, wr *verbs.SendWR) { wr.SGL = b.sgl(0, 8) }, verbs.WCLocProtErr},
	} {
		t.Run(name, func(t *testing.T) {
			_, dev := newRoCE(t)
			ctx := open(t, dev)
			a, b := connect(t, ctx, ctx, verbs.QPConfig{})
			b.put(64, 5)
			bad, behind := a.on(add, 8, b, 64), a.on(add, 16, b, 64)
			bad.ID, behind.ID = 1, 2
			c.change(a, b, &bad)
			bad.Flags = 0 // it completes nevertheless
			send := verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: a.sgl(0, 8)}
			ok := a.on(add, 24, b, 64)
			a.post(ok, bad, behind, send)
			a.ends(verbs.WCSuccess, 0)
			a.ends(c.want, 1)
			a.ends(verbs.WCWRFlushErr, 2, 3)
			a.post(behind, send)
			a.ends(verbs.WCWRFlushErr, 2, 3)
			require.EqualValues(t, 6, b.word(64), "the first alone was done")
			require.Zero(t, a.word(8)|a.word(16))
			require.Equal(t, verbs.QPStateErr, a.qp.State())
		})
	}
}

// TestRefused checks that requests that cannot succeed are refused when they are posted, also after
// a masked atomic.
func TestRefused(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	good := a.on(add, 8, b, 64)
	for _, wr := range []verbs.SendWR{add, ext.FetchAddWR(verbs.Remote{Length: 8}, 1)} {
		wr = a.on(wr, 16, b, 65)
		n, err := a.qp.PostSend([]verbs.SendWR{good, wr, good})
		require.Equal(t, 1, n)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "request 1")
		a.ends(verbs.WCSuccess, 0)
	}
	require.EqualValues(t, 2, b.word(64))
	idle := newEnd(t, a.ctx, verbs.QPConfig{})
	n, err := idle.qp.PostSend([]verbs.SendWR{good})
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrState)
}

// TestFullQueue checks that as many requests can wait as the send queue has room for.
func TestFullQueue(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 4}})
	most := a.qp.Cap().MaxSendWR
	list := make([]verbs.SendWR, 4*most)
	for i := range list {
		list[i] = a.on(add, 8, b, 64)
		list[i].ID = uint64(i)
	}
	n, err := a.qp.PostSend(list)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Greater(t, n, most)
	require.LessOrEqual(t, n, 2*most+1)
	for i := range n {
		a.ends(verbs.WCSuccess, uint64(i))
	}
	require.EqualValues(t, n, b.word(64))
	a.post(list[0])
	a.ends(verbs.WCSuccess, 0)
}

// TestEnds closes a connection, or closes or resets a QP, during masked atomics. Each request
// completes once, in order, and the word has changed once per successful request, or once more for
// a request whose answer was lost.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(a, b *end) error{
		"Disconnect": func(a, _ *end) error { return a.id.Disconnect() },
		"Peer":       func(_, b *end) error { return b.id.Disconnect() },
		"Modify": func(a, _ *end) error {
			return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr},
				verbs.QPAttrState)
		},
		"Drain":   func(a, _ *end) error { return a.qp.Drain(soon(a)) },
		"Close":   func(a, _ *end) error { return a.qp.Close() },
		"CloseID": func(a, _ *end) error { return a.id.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			_, dev := newRoCE(t)
			for round := range 8 {
				a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
				list := make([]verbs.SendWR, 60)
				for i := range list {
					list[i] = a.on(add, 8, b, 64)
					if i%3 == 2 {
						list[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: a.sgl(16, 8), RemoteAddr: b.mr.Addr(),
							RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
					}
					list[i].ID = uint64(i)
				}
				a.post(list...)
				for range round {
					a.wait()
				}
				require.NoError(t, end(a, b))
				if name == "Peer" {
					a.over()
				}
				wcs := make([]verbs.WC, len(list)+1)
				n, err := a.cq.Poll(wcs)
				require.NoError(t, err)
				require.Equal(t, len(list)-round, n, "all completions are in the CQ")
				done, status := uint64(0), verbs.WCSuccess
				for i := range list {
					if i >= round {
						wc := &wcs[i-round]
						require.EqualValues(t, i, wc.ID)
						if wc.Status != verbs.WCSuccess {
							status = verbs.WCWRFlushErr
						}
						require.Equal(t, status.String(), wc.Status.String(), "%d", i)
					}
					if status == verbs.WCSuccess && i%3 != 2 {
						done++
					}
				}
				_ = b.qp.Close() // nothing is executed afterwards
				require.Contains(t, []uint64{done, done + 1}, b.word(64))
			}
		})
	}
}

// TestReconnect checks that a QP that is connected again retains nothing of its first connection.
func TestReconnect(t *testing.T) {
	_, dev := newRoCE(t)
	ctx, passive := open(t, dev), open(t, dev)
	a, b := connect(t, ctx, passive, verbs.QPConfig{})
	wr := a.on(add, 8, b, 64)
	for range 40 {
		a.post(wr)
	}
	require.NoError(t, a.id.Close())
	require.NoError(t, b.id.Close())
	for _, e := range []*end{a, b} {
		require.NoError(t, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	}
	var wcs [64]verbs.WC
	_, err := a.cq.Poll(wcs[:])
	require.NoError(t, err)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: passive})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	join(t, ln, a, b)
	b.put(64, 7)
	wr.ID = 99
	a.post(wr)
	a.ends(verbs.WCSuccess, 99)
	require.EqualValues(t, 8, b.word(64))
}

// TestSinkCloses closes the region of the sink while the request is in progress. The request fails
// as one of the device would, and no unmapped memory is accessed.
func TestSinkCloses(t *testing.T) {
	_, dev := newRoCE(t)
	limit := time.Now().Add(30 * time.Second)
	// all requests may have completed before the region is closed
	for rounds, inTime := 0, 0; rounds < 10 || inTime == 0; rounds++ {
		require.True(t, time.Now().Before(limit), "no request was under way in %d rounds", rounds)
		a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
		mr, err := a.pd.AllocMR(4096, verbs.AccessLocalWrite)
		require.NoError(t, err)
		sge, err := mr.SGE(0, 8)
		require.NoError(t, err)
		wr := a.on(add, 0, b, 64)
		wr.SGL = []verbs.SGE{sge}
		list := make([]verbs.SendWR, 20)
		for i := range list {
			list[i] = wr
			list[i].ID = uint64(i)
		}
		a.post(list...)
		require.NoError(t, mr.Close())
		status := verbs.WCSuccess
		for i := range list {
			wc := a.wait()
			require.EqualValues(t, i, wc.ID)
			if wc.Status != status {
				require.Contains(t, []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCWRFlushErr}, wc.Status)
				status = verbs.WCWRFlushErr
			}
		}
		if status == verbs.WCWRFlushErr {
			inTime++
		}
	}
}

// TestConcurrentUse posts to and polls one QP from several goroutines. Each request completes once.
func TestConcurrentUse(t *testing.T) {
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	const posters, each = 4, 50
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				wr := a.on(add, 8*p, b, 64)
				if i%2 == 1 {
					wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: a.sgl(64, 8), RemoteAddr: b.mr.Addr(),
						RKey: b.mr.RKey(), Flags: verbs.SendSignaled}
				}
				wr.ID = uint64(p*each + i)
				for {
					n, err := a.qp.PostSend([]verbs.SendWR{wr})
					if n == 1 {
						break
					}
					if !errors.Is(err, verbs.ErrQueueFull) {
						t.Error(err)
						return
					}
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := make(map[uint64]int)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	for range 2 {
		wg.Go(func() {
			var wcs [4]verbs.WC
			for ctx.Err() == nil {
				n, err := a.cq.Poll(wcs[:])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, wc := range wcs[:n] {
					if wc.Status != verbs.WCSuccess {
						t.Error(wc)
					}
					seen[wc.ID]++
				}
				if len(seen) == posters*each {
					cancel()
				}
				mu.Unlock()
				if n == 0 {
					time.Sleep(50 * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, posters*each)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
	require.EqualValues(t, posters*each/2, b.word(64))
}

// TestAllocNothing checks that masked atomics, and the requests that wait for them, do not allocate
// once the queues have grown.
func TestAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, dev := newRoCE(t)
	a, b := connect(t, open(t, dev), open(t, dev), verbs.QPConfig{})
	list := []verbs.SendWR{a.on(add, 8, b, 64), a.on(verbs.SendWR{Opcode: verbs.WRRDMARead}, 16, b, 64),
		a.on(swap, 24, b, 64)}
	var wcs [4]verbs.WC
	run := func() {
		if n, err := a.qp.PostSend(list); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		for got := 0; got < 3; {
			n, err := a.cq.Poll(wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			got += n
			if n == 0 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
	for range 100 {
		run()
	}
	require.Zero(t, testing.AllocsPerRun(100, run))
}

// TestPrivateData checks that at most 48 bytes are accepted, and exactly 48 delivered.
func TestPrivateData(t *testing.T) {
	_, dev := newRoCE(t)
	ctx := open(t, dev)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	padded := func(n int) []byte { return append(bytes.Repeat([]byte{7}, n), make([]byte, ibcompat.PrivateData-n)...) }
	for _, answer := range []string{"Accept", "Reject"} {
		for _, n := range []int{0, 1, 48, 49} {
			a, b := newEnd(t, ctx, verbs.QPConfig{}), newEnd(t, ctx, verbs.QPConfig{})
			id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: ctx})
			require.NoError(t, err)
			done, limit := make(chan error, 1), soon(t)
			sent := min(n, 48)
			go func() { done <- id.Connect(limit, a.qp, cm.ConnParam{PrivateData: padded(48)[:sent]}) }()
			req, err := ln.Accept(limit)
			require.NoError(t, err)
			require.Equal(t, padded(sent), req.PrivateData())
			data := append(padded(sent)[:sent], make([]byte, n-sent)...)
			var other *cm.ID
			if answer == "Accept" {
				other, err = req.Accept(limit, b.qp, cm.ConnParam{PrivateData: data})
			} else {
				err = req.Reject(data)
			}
			var le *verbs.LimitError
			var rejected *cm.RejectedError
			switch failed := <-done; {
			case n == 49:
				require.ErrorAs(t, err, &le)
				require.Equal(t, verbs.LimitError{Name: "private data", Limit: 48, Value: 49}, *le)
				require.ErrorIs(t, failed, cm.ErrRejected)
			case answer == "Accept":
				require.NoError(t, err)
				require.NoError(t, failed)
				require.Equal(t, padded(n), id.PrivateData())
				require.Equal(t, padded(sent), other.PrivateData())
			default:
				require.NoError(t, err)
				require.ErrorAs(t, failed, &rejected)
				require.Equal(t, padded(n), rejected.PrivateData)
			}
			require.NoError(t, id.Close())
			require.NoError(t, other.Close())
		}
	}
	a := newEnd(t, ctx, verbs.QPConfig{})
	id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	require.ErrorIs(t, id.Connect(soon(t), a.qp, cm.ConnParam{PrivateData: make([]byte, 49)}), verbs.ErrLimit)
}
