// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package ibcompat_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// fake returns a device of package fakeverbs, and the other devices.
func fake(t testing.TB, name string) (dev *verbs.Device, others []*verbs.Device) {
	t.Helper()
	fakeverbs.Start(t)
	devices, err := verbs.Devices()
	require.NoError(t, err)
	for _, d := range devices {
		t.Cleanup(func() { require.NoError(t, d.CloseShared()) })
		if d.Name() == name {
			dev = d
		} else {
			others = append(others, d)
		}
	}
	require.NotNil(t, dev)
	return dev, others
}

func wrap(t testing.TB, in *verbs.Device) *verbs.Device {
	t.Helper()
	dev, err := ibcompat.Wrap(in, ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return dev
}

// TestConformance runs the part of the conformance suite that the fake RoCE adapter supports
// through the wrapped device, judged as InfiniBand.
func TestConformance(t *testing.T) {
	in, others := fake(t, "fake0")
	fakeverbs.Loopback(true)
	dev := wrap(t, in)
	verbstest.RunSubjects(t, func(*testing.T) verbstest.Fabric {
		return verbstest.Fabric{Active: dev, Passive: dev, Listen: "192.0.2.1:0", Others: append(others, in)}
	}, "GID", "PD", "Atomic", "Page", "Order", "List", "UC", "UD", "AH", "Foreign", "Disconnect", "Alloc")
}

// TestPassThrough checks that lists without a masked atomic reach the device, and completions the
// program, as if the device were not wrapped.
func TestPassThrough(t *testing.T) {
	in, _ := fake(t, "fake0")
	var posted [2][]fakeverbs.WR
	var polled [2][]verbs.WC
	for i, dev := range []*verbs.Device{in, wrap(t, in)} {
		ctx, err := dev.Open()
		require.NoError(t, err)
		mr, cq, qp := byHand(t, ctx)
		sgl := func(n int) []verbs.SGE {
			sge, err := mr.SGE(64, n)
			require.NoError(t, err)
			return []verbs.SGE{sge}
		}
		to := verbs.Remote{Addr: 0x1000, Length: 1 << 30, RKey: 0x77}
		inline := verbs.Send(sgl(16)...)
		inline.Flags |= verbs.SendInline | verbs.SendSolicited | verbs.SendFence
		list := []verbs.SendWR{verbs.Write(to, sgl(64)...), verbs.WriteImm(to, 5, sgl(64)...),
			verbs.Read(to, sgl(64)...), verbs.SendImm(6, sgl(64)...), verbs.SendInv(9, sgl(64)...),
			verbs.FetchAdd(to, 7, sgl(8)...), verbs.CmpSwap(to, 8, 9, sgl(8)...),
			{Opcode: verbs.WRLocalInv, InvalidateRKey: 10}, inline}
		for k := range list {
			list[k].ID = uint64(k) << 60
		}
		before := len(fakeverbs.Posted())
		n, err := qp.PostRecv([]verbs.RecvWR{{ID: 1 << 63, SGL: sgl(32)}, {}})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		n, err = qp.PostSend(list)
		require.NoError(t, err)
		require.Equal(t, len(list), n)
		posted[i] = fakeverbs.Posted()[before:]
		call := posted[i][0].Call
		for k := range posted[i] {
			w := &posted[i][k]
			require.Equal(t, qp.Num(), w.QPN)
			w.QPN, w.Call = 0, w.Call-call
			for s := range w.SGEs {
				require.Equal(t, mr.LKey(), w.SGEs[s].LKey)
				require.Equal(t, mr.Addr()+64, w.SGEs[s].Addr)
				w.SGEs[s].Addr, w.SGEs[s].LKey = 0, 0
			}
		}
		for k, wc := range []fakeverbs.WC{{WRID: 1 << 63, Opcode: 128, ByteLen: 7, Flags: 1, Imm: 3, SrcQP: 4},
			{WRID: 5, Opcode: 2, ByteLen: 6}, {WRID: 8, Status: 10, VendorErr: 99}, {WRID: 9, Status: 5}} {
			require.True(t, fakeverbs.InjectWC(qp.Num(), k == 0, wc))
		}
		wcs := make([]verbs.WC, 8)
		n, err = cq.Poll(wcs)
		require.NoError(t, err)
		polled[i] = wcs[:n]
		for k := range polled[i] {
			require.Equal(t, qp.Num(), polled[i][k].QPNum)
			polled[i][k].QPNum = 0
		}
		require.NoError(t, ctx.CloseAll())
	}
	require.Len(t, posted[0], 11)
	require.Equal(t, posted[0], posted[1])
	require.Len(t, polled[0], 4)
	require.Equal(t, polled[0], polled[1])
}

// TestInner checks which requests the device gets for a masked atomic, and when it gets the
// requests after it.
func TestInner(t *testing.T) {
	in, _ := fake(t, "fake0")
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	word, err := mr.SGE(0, 8)
	require.NoError(t, err)
	data, err := mr.SGE(64, 5)
	require.NoError(t, err)
	copy(mr.Bytes()[64:], "hello")
	inline := verbs.SendWR{ID: 2, Opcode: verbs.WRSend, SGL: []verbs.SGE{data},
		Flags: verbs.SendInline | verbs.SendSignaled}
	masked := ext.MaskedCmpSwapWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 0, 0xf0, 0x1234, 0xff, word)
	masked.ID, masked.Flags = 1, verbs.SendSignaled|verbs.SendFence
	for _, wr := range []verbs.SendWR{masked, inline} {
		n, err := qp.PostSend([]verbs.SendWR{wr})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	copy(mr.Bytes()[64:], "later") // the program may do this: the data were inline

	posted := fakeverbs.Posted()
	require.Len(t, posted, 1, "the Send waits")
	swap := posted[0]
	require.Equal(t, "ATOMIC_CMP_AND_SWP", verbs.WROpcode(swap.Opcode).String())
	require.Equal(t, verbs.SendSignaled|verbs.SendFence, verbs.SendFlags(swap.Flags))
	require.Equal(t, []uint64{0x1000, 0x77, 0, 0x34},
		[]uint64{swap.RemoteAddr, uint64(swap.RKey), swap.CompareAdd, swap.Swap})
	require.NotEqual(t, word.LKey, swap.SGEs[0].LKey, "its sink is not the program's")
	require.NotEqual(t, masked.ID, swap.WRID)

	window, err := qp.PD().AllocMW(verbs.MWType1)
	require.NoError(t, err)
	bindable, err := qp.PD().AllocMR(4096, allRights|verbs.AccessMWBind)
	require.NoError(t, err)
	bind := verbs.MWBind{MW: window, MR: bindable, Addr: bindable.Addr(), Length: 8, Access: verbs.AccessRemoteRead}
	require.ErrorIs(t, qp.BindMW(3, 0, bind), verbs.ErrQueueFull)

	require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
	require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCMaskedCompSwap, ByteLen: 8, QPNum: qp.Num()}, next(t, cq))
	posted = fakeverbs.Posted()
	require.Len(t, posted, 2)
	require.Equal(t, "hello", string(posted[1].Inline))
	require.EqualValues(t, 2, posted[1].WRID)
	require.NoError(t, qp.BindMW(3, 0, bind))
	require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
	require.EqualValues(t, 2, next(t, cq).ID)

	// The next guess is the value that was swapped in.
	n, err := qp.PostSend([]verbs.SendWR{masked})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	posted = fakeverbs.LastPosted()
	require.EqualValues(t, 0x34, posted[0].CompareAdd)
	require.EqualValues(t, 0x34, posted[0].Swap, "the bits that are compared differ")
	fakeverbs.MoveQP(qp.Num(), int(verbs.QPStateErr))
	wc := next(t, cq)
	for wc.ID == 3 { // the bind
		wc = next(t, cq)
	}
	require.EqualValues(t, 1, wc.ID)
	require.Equal(t, verbs.WCWRFlushErr, wc.Status)
}

// TestDestroyed checks that the completions of a closed QP are the program's, even those of inner
// requests.
func TestDestroyed(t *testing.T) {
	in, _ := fake(t, "fake0")
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	word, err := mr.SGE(0, 8)
	require.NoError(t, err)
	list := make([]verbs.SendWR, 5)
	for i := range list {
		list[i] = ext.MaskedFetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 1, 0, word)
		if i%2 == 1 {
			list[i] = verbs.Write(verbs.Remote{Addr: 0x2000, Length: 1 << 30, RKey: 0x77}, word)
		}
		list[i].ID = uint64(i)
	}
	n, err := qp.PostSend(list)
	require.NoError(t, err)
	require.Equal(t, len(list), n)
	num := qp.Num()
	require.NoError(t, qp.Close())
	for i := range list {
		wc := next(t, cq)
		require.EqualValues(t, i, wc.ID)
		require.Equal(t, verbs.WCWRFlushErr, wc.Status)
		require.Equal(t, num, wc.QPNum)
	}
}

// TestNoRoom checks that the next CmpSwap, or a waiting request, is posted later if the inner queue
// has no room for it.
func TestNoRoom(t *testing.T) {
	in, _ := fake(t, "fake0")
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	masked, write := maskedAndWrite(t, mr)
	n, err := qp.PostSend([]verbs.SendWR{masked, write})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	fakeverbs.Fail("ibv_post_send", 1, syscall.ENOMEM)
	require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
	require.EqualValues(t, 1, next(t, cq).ID)
	for range 300 { // the driver retries
		if len(fakeverbs.Posted()) == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
	require.EqualValues(t, 2, next(t, cq).ID)
}

// TestBrokenLibrary checks that a library that refuses waiting requests without reason breaks the
// QP, and that each request still completes, in order, whether or not the program polls meanwhile.
func TestBrokenLibrary(t *testing.T) {
	for _, polls := range []bool{true, false} {
		t.Run(fmt.Sprintf("polls=%v", polls), func(t *testing.T) {
			in, _ := fake(t, "fake0")
			ctx, err := wrap(t, in).Open()
			require.NoError(t, err)
			defer func() { require.NoError(t, ctx.CloseAll()) }()
			mr, cq, qp := byHand(t, ctx)
			masked, write := maskedAndWrite(t, mr)
			n, err := qp.PostSend([]verbs.SendWR{masked, write, masked})
			require.NoError(t, err)
			require.Equal(t, 3, n)
			fakeverbs.Fail("ibv_post_send", 1, syscall.EIO)
			require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
			if !polls {
				require.Eventually(t, func() bool { return qp.State() == verbs.QPStateErr }, 30*time.Second,
					time.Millisecond)
			}
			require.Equal(t, verbs.WCSuccess.String(), next(t, cq).Status.String())
			wc := next(t, cq)
			require.EqualValues(t, 2, wc.ID)
			require.Equal(t, verbs.WCLocQPOpErr.String(), wc.Status.String())
			wc = next(t, cq)
			require.EqualValues(t, 1, wc.ID)
			require.Equal(t, verbs.WCWRFlushErr.String(), wc.Status.String())
			require.Equal(t, verbs.QPStateErr, qp.State())
		})
	}
}

// maskedAndWrite returns a masked atomic with ID 1, and a Write with ID 2.
func maskedAndWrite(t testing.TB, mr *verbs.MR) (masked, write verbs.SendWR) {
	t.Helper()
	word, err := mr.SGE(0, 8)
	require.NoError(t, err)
	masked = ext.MaskedFetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 1, 0, word)
	masked.ID, masked.Flags = 1, verbs.SendSignaled
	write = verbs.Write(verbs.Remote{Addr: 0x2000, Length: 1 << 30, RKey: 0x77}, word)
	write.ID = 2
	return masked, write
}

// next polls the next completion.
func next(t testing.TB, cq *verbs.CQ) verbs.WC {
	t.Helper()
	var wcs [1]verbs.WC
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(100 * time.Microsecond) {
		n, err := cq.Poll(wcs[:])
		require.NoError(t, err)
		if n == 1 {
			return wcs[0]
		}
	}
	require.FailNow(t, "no completion")
	return verbs.WC{}
}

// BenchmarkCostPassThrough compares posting and polling on a wrapped device with the inner device,
// whose functions do next to nothing: calls with one request or completion, and lists of 16.
func BenchmarkCostPassThrough(b *testing.B) {
	in, _ := fake(b, "fake0")
	var one, list []contestant
	for _, c := range []struct {
		name string
		dev  *verbs.Device
	}{{"bare", in}, {"ib", wrap(b, in)}} {
		ctx, err := c.dev.Open()
		require.NoError(b, err)
		b.Cleanup(func() { fakeverbs.SetHot(fakeverbs.HotOff); require.NoError(b, ctx.CloseAll()) })
		mr, cq, qp := byHand(b, ctx)
		sge, err := mr.SGE(0, 64)
		require.NoError(b, err)
		wrs, wcs := make([]verbs.SendWR, 16), make([]verbs.WC, 16)
		for i := range wrs {
			wrs[i] = verbs.Write(verbs.Remote{Addr: 4096, Length: 1 << 30, RKey: 7}, sge)
		}
		post := func(n, length int) {
			for range n {
				if k, err := qp.PostSend(wrs[:length]); k != length || err != nil {
					b.Fatal(k, err)
				}
			}
		}
		poll := func(n, length int) {
			for range n {
				if k, err := cq.Poll(wcs[:length]); k != length || err != nil {
					b.Fatal(k, err)
				}
			}
		}
		one = append(one, contestant{"post-" + c.name + "-ns", func(n int) { post(n, 1) }},
			contestant{"poll-" + c.name + "-ns", func(n int) { poll(n, 1) }})
		list = append(list, contestant{"list-" + c.name + "-ns", func(n int) { post(n, 16); poll(n, 16) }})
	}
	fakeverbs.SetHot(fakeverbs.HotEndless)
	contest(b, 10000, append(one, list...)...)
}

// byHand returns a QP that is connected to itself.
func byHand(t testing.TB, ctx *verbs.Context) (*verbs.MR, *verbs.CQ, *verbs.QP) {
	t.Helper()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	return byHandOn(t, pd, verbs.CQConfig{})
}

func byHandOn(t testing.TB, pd *verbs.PD, cfg verbs.CQConfig) (*verbs.MR, *verbs.CQ, *verbs.QP) {
	t.Helper()
	mr, err := pd.AllocMR(4096, allRights)
	require.NoError(t, err)
	cq, err := pd.Context().CreateCQ(cfg)
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxInlineData: 64}})
	require.NoError(t, err)
	bringUp(t, qp)
	return mr, cq, qp
}

// bringUp connects a QP in RESET to itself.
func bringUp(t testing.TB, qp *verbs.QP) {
	t.Helper()
	for _, to := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS} {
		require.NoError(t, qp.Modify(verbs.QPAttr{State: to, PortNum: 1, PathMTU: verbs.MTU1024, MinRNRTimer: 12,
			DestQPNum: qp.Num(), AH: verbs.AHAttr{PortNum: 1, IsGlobal: true}, MaxRdAtomic: 1, MaxDestRdAtomic: 1,
			AccessFlags: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic}, toState[to]))
	}
}

// toState lists the attributes for each transition.
var toState = map[verbs.QPState]verbs.QPAttrMask{
	verbs.QPStateInit: verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags,
	verbs.QPStateRTR: verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN |
		verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
	verbs.QPStateRTS: verbs.QPAttrState | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrSQPSN |
		verbs.QPAttrMaxRdAtomic,
}

// TestEvent checks that a program that sleeps on a channel gets the completion of a masked atomic
// that takes two CmpSwaps. There may be a superfluous event.
func TestEvent(t *testing.T) {
	in, _ := fake(t, "fake0")
	fakeverbs.Loopback(true)
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	mr, cq, qp := byHandOn(t, pd, verbs.CQConfig{Channel: ch})
	sge, err := mr.SGE(0, 8)
	require.NoError(t, err)
	for round := range 20 {
		copy(mr.Bytes()[64:], []byte{byte(round + 1), 0, byte(round + 1)}) // not the value that was left there
		wr := ext.MaskedFetchAddWR(verbs.Remote{Addr: mr.Addr() + 64, Length: 8, RKey: mr.RKey()}, 1, 0, sge)
		wr.Flags = verbs.SendSignaled
		require.NoError(t, cq.ReqNotify(false))
		n, err := qp.PostSend([]verbs.SendWR{wr})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		var wcs [4]verbs.WC
		for n = 0; n == 0; {
			from, err := ch.Wait(soon(t))
			require.NoError(t, err)
			require.Same(t, cq, from)
			require.NoError(t, cq.ReqNotify(false))
			n, err = cq.Poll(wcs[:])
			require.NoError(t, err)
		}
		require.Equal(t, 1, n)
		require.NoError(t, wcs[0].Err())
		require.EqualValues(t, round+2, mr.Bytes()[64])
	}
}

// TestDmabufSink checks that memory outside the process cannot be the sink of a masked atomic, but
// can be one of other requests.
func TestDmabufSink(t *testing.T) {
	in, _ := fake(t, "fake0")
	fakeverbs.AutoComplete(true)
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	_, _, qp := byHand(t, ctx)
	mr, err := qp.PD().RegDmabufMR(0, 4096, 0, 3, verbs.AccessLocalWrite)
	require.NoError(t, err)
	sge, err := mr.SGE(0, 8)
	require.NoError(t, err)
	n, err := qp.PostSend([]verbs.SendWR{ext.FetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 1, sge),
		ext.MaskedFetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 1, 1, sge)})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "request 1")
	require.Equal(t, 1, n)
}

// TestPostAllocNothing checks that posting and polling past the provider do not allocate.
func TestPostAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	in, _ := fake(t, "fake0")
	fakeverbs.AutoComplete(true)
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	sge, err := mr.SGE(0, 8)
	require.NoError(t, err)
	wrs, wcs := make([]verbs.SendWR, 16), make([]verbs.WC, 16)
	for i := range wrs {
		wrs[i] = verbs.Write(verbs.Remote{Addr: 0x1000, Length: 1 << 30, RKey: 0x77}, sge)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if n, err := qp.PostSend(wrs); n != 16 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := cq.Poll(wcs); n != 16 || err != nil {
			t.Fatal(n, err)
		}
	}))
}

// TestPolledPast checks that a poll that began before a masked atomic was posted can poll its
// CmpSwap past the provider.
func TestPolledPast(t *testing.T) {
	in, _ := fake(t, "fake0")
	fakeverbs.Loopback(true)
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	sge, err := mr.SGE(0, 8)
	require.NoError(t, err)
	mr.Bytes()[64] = 5 // makes the first guess wrong
	wr := ext.MaskedFetchAddWR(verbs.Remote{Addr: mr.Addr() + 64, Length: 8, RKey: mr.RKey()}, 1, 0, sge)
	wr.ID, wr.Flags = 3, verbs.SendSignaled
	fakeverbs.Hold("ibv_poll_cq")
	var wcs [4]verbs.WC
	polled := make(chan int)
	go func() {
		n, err := cq.Poll(wcs[:])
		if err != nil {
			t.Error(err)
		}
		polled <- n
	}()
	for !fakeverbs.Holding() {
		time.Sleep(time.Millisecond)
	}
	n, err := qp.PostSend([]verbs.SendWR{wr})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	fakeverbs.Release()
	if n = <-polled; n == 0 { // it was the CmpSwap with the wrong guess
		wcs[0] = next(t, cq)
	}
	require.Equal(t, verbs.WC{ID: 3, Opcode: verbs.WCMaskedFetchAdd, ByteLen: 8, QPNum: qp.Num()}, wcs[0])
	require.EqualValues(t, 6, mr.Bytes()[64])
}

// TestReset checks that a QP reset during a masked atomic retains nothing of it.
func TestReset(t *testing.T) {
	in, _ := fake(t, "fake0")
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	mr, cq, qp := byHand(t, ctx)
	sge, err := mr.SGE(0, 8)
	require.NoError(t, err)
	masked := ext.MaskedFetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x77}, 1, 0, sge)
	masked.ID, masked.Flags = 1, verbs.SendSignaled
	write := verbs.Write(verbs.Remote{Addr: 0x2000, Length: 1 << 30, RKey: 0x77}, sge)
	for round := range 3 {
		n, err := qp.PostSend([]verbs.SendWR{masked, write, masked})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		before := fakeverbs.LastPosted()[0].WRID
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		bringUp(t, qp)
		// An old completion that the device retained must not be mistaken for that of a later
		// request.
		masked.ID = uint64(10 + round)
		n, err = qp.PostSend([]verbs.SendWR{masked})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.True(t, fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: before}))
		require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
		wc := next(t, cq)
		require.Equal(t, masked.ID, wc.ID)
		require.Equal(t, verbs.WCSuccess, wc.Status)
	}
	var wcs [4]verbs.WC
	n, err := cq.Poll(wcs[:])
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestSupportOfType checks that an operation that a transport service lacks is not composed either.
func TestSupportOfType(t *testing.T) {
	in, _ := fake(t, "fake0")
	ctx, err := wrap(t, in).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	for typ, want := range map[verbs.QPType]ext.Support{verbs.QPTypeRC: ext.Composed, verbs.QPTypeUC: ext.None,
		verbs.QPTypeUD: ext.None} {
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: typ})
		require.NoError(t, err)
		s, why := ibcompat.Support(qp, verbs.OpMaskedCmpSwap)
		require.Equal(t, want, s, typ)
		require.NotEmpty(t, why)
		require.Equal(t, want != ext.None, qp.Supports(verbs.OpMaskedCmpSwap))
		require.True(t, qp.Supports(verbs.OpSend))
	}
}
