// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// itself returns a QP that is its own peer. change can modify the attributes for RTR and RTS.
func itself(t testing.TB, ctx *verbs.Context, change func(rtr, rts *verbs.QPAttr)) *end {
	t.Helper()
	e := newEnd(t, ctx, verbs.QPConfig{})
	e.toINIT()
	e.alone(change)
	return e
}

// alone connects a QP in INIT to itself.
func (e *end) alone(change func(rtr, rts *verbs.QPAttr)) {
	e.Helper()
	first, second := e.rtr(e.qp.Num()), rts
	if change != nil {
		change(&first, &second)
	}
	require.NoError(e, e.qp.Modify(first, rtrMask))
	require.NoError(e, e.qp.Modify(second, rtsMask))
}

// worksAlone requires that every operation works from an end to itself. Its CQ gets the completions
// of both queues.
func (e *end) worksAlone() {
	e.Helper()
	e.put(1024, 40)
	e.put(64, 7)
	e.recv(70)
	e.post(verbs.SendImm(1, e.sgl(64, 8)...), e.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 2), 72, e, 1024),
		verbs.Read(e.there(), e.sgl(80, 8)...))
	e.ends(verbs.WCSuccess, 70, 0, 0, 0)
	require.Equal(e, []uint64{40, 42, 7}, []uint64{e.word(72), e.word(80), e.word(2048)})
}

// overEach runs a test on an RNIC with RFC 7306, and on one without.
func overEach(t *testing.T, test func(t *testing.T, ctx *verbs.Context)) {
	for name, without := range map[string]verbs.OpSet{"full": 0, "plain": ext.Operations} {
		t.Run(name, func(t *testing.T) {
			_, dev := newIWARP(t, without, ibcompat.Config{})
			test(t, open(t, dev))
		})
	}
}

// TestSelf checks that a QP can be its own peer, and that every operation works on it, in order.
func TestSelf(t *testing.T) {
	overEach(t, func(t *testing.T, ctx *verbs.Context) {
		a := itself(t, ctx, nil)
		a.worksAlone()

		// A list waits for the receive of its first message, as does everything after it.
		a.put(1024, 100)
		a.put(64, 500)
		copy(a.mr.Bytes(), "hello")
		to := verbs.Remote{Addr: a.mr.Addr() + 1024, Length: 1 << 30, RKey: a.mr.RKey()}
		swap := ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, 1, 0xff, 7, 0xff)
		swap.Compare = 501
		list := []verbs.SendWR{verbs.SendImm(0, a.sgl(0, 5)...),
			a.on(ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, 1, 1<<63), 72, a, 1024),
			verbs.Write(to, a.sgl(64, 8)...), a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 96, a, 1024),
			a.on(swap, 80, a, 1024), verbs.Read(to, a.sgl(88, 8)...),
			verbs.WriteImm(verbs.Remote{Addr: a.mr.Addr() + 512, Length: 1 << 30, RKey: a.mr.RKey()}, 2,
				a.sgl(0, 5)...), verbs.Write(verbs.Remote{}), verbs.Send()}
		for i := range list {
			list[i].ID = uint64(i)
		}
		list[3].Flags |= verbs.SendFence
		a.post(list...)
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, uint64(100), a.word(1024), "nothing goes past a Send that waits")
		a.recv(70)
		for i, want := range []verbs.WC{
			{ID: 70, Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, ByteLen: 5},
			{ID: 0, Opcode: verbs.WCSend},
			{ID: 1, Opcode: verbs.WCFetchAdd, ByteLen: 8},
			{ID: 2, Opcode: verbs.WCRDMAWrite},
			{ID: 3, Opcode: verbs.WCFetchAdd, ByteLen: 8},
			{ID: 4, Opcode: verbs.WCCompSwap, ByteLen: 8},
			{ID: 5, Opcode: verbs.WCRDMARead, ByteLen: 8},
		} {
			got := a.wait()
			want.QPNum = a.qp.Num()
			want.Opcode = got.Opcode // of masked atomics it differs
			require.Equal(t, want, got, i)
		}
		a.recv(71)
		require.Equal(t, verbs.WC{ID: 71, Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ByteLen: 5, Imm: 2,
			Imm64: 2 << 32, QPNum: a.qp.Num()}, a.wait())
		a.ends(verbs.WCSuccess, 6, 7)
		a.recv(72)
		a.ends(verbs.WCSuccess, 72, 8)
		require.Equal(t, []uint64{100, 500, 501, 0x107, 0x107},
			[]uint64{a.word(72), a.word(96), a.word(80), a.word(88), a.word(1024)})
		require.Equal(t, "hello", string(a.mr.Bytes()[512:517]))
		s, why := ibcompat.Support(a.qp, verbs.OpFetchAdd)
		require.Equal(t, ext.Emulated, s, why)
		s, _ = ibcompat.Support(a.qp, verbs.OpImm64)
		require.Equal(t, ext.None, s)
	})
}

// TestSelfLong checks every byte of messages longer than what is copied at once, with elements that
// start and end anywhere.
func TestSelfLong(t *testing.T) {
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	a := newEnd(t, open(t, dev),
		verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 4, MaxRecvSGE: 4}})
	a.toINIT()
	a.alone(nil)
	const n = 200_000
	mr, err := a.pd.AllocMR(2*n, allRights)
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	from, to := mr.Bytes()[:n], mr.Bytes()[n:]
	elements := func(at int) (sgl []verbs.SGE) {
		for _, cut := range [][2]int{{0, 1}, {1, 70_001}, {70_001, 70_001}, {70_001, n}} {
			s, err := mr.SGE(at+cut[0], cut[1]-cut[0])
			require.NoError(t, err)
			sgl = append(sgl, s)
		}
		return sgl
	}
	whole, err := mr.SGE(n, n)
	require.NoError(t, err)
	there := verbs.Remote{Addr: mr.Addr() + n, Length: 1 << 30, RKey: mr.RKey()}
	for name, wr := range map[string]verbs.SendWR{"send": verbs.Send(elements(0)...),
		"write": verbs.Write(there, elements(0)...),
		"read":  verbs.Read(verbs.Remote{Addr: mr.Addr(), Length: 1 << 30, RKey: mr.RKey()}, elements(n)...)} {
		for i := range from {
			from[i], to[i] = byte(rand.Uint32()), 0
		}
		if name == "send" {
			_, err := a.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{whole}}})
			require.NoError(t, err)
		}
		a.post(wr)
		if name == "send" {
			a.ends(verbs.WCSuccess, 1)
		}
		a.ends(verbs.WCSuccess, 0)
		require.Equal(t, from, to, name)
	}
	clear(to)
	there.Addr++
	a.post(verbs.Write(there, elements(0)...))
	a.ends(verbs.WCRemAccessErr, 0)
	require.Equal(t, make([]byte, n), to, "of what does not fit nothing is written")
}

// steps returns requests of a QP that is its own peer which take several steps. Each copies the
// first half of a region to the second.
const stepsLen = 5<<20 + 1

func steps(t *testing.T, a *end) (mr *verbs.MR, requests map[string]verbs.SendWR) {
	t.Helper()
	mr, err := a.pd.AllocMR(2*stepsLen, allRights)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	from, err := mr.SGE(0, stepsLen)
	require.NoError(t, err)
	to, err := mr.SGE(stepsLen, stepsLen)
	require.NoError(t, err)
	there := verbs.Remote{Addr: to.Addr, Length: 1 << 30, RKey: mr.RKey()}
	_, err = a.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{to}}, {ID: 1, SGL: []verbs.SGE{to}}})
	require.NoError(t, err)
	return mr, map[string]verbs.SendWR{"send": verbs.SendImm(9, from), "write": verbs.Write(there, from),
		"write imm": verbs.WriteImm(there, 9, from),
		"read":      verbs.Read(verbs.Remote{Addr: from.Addr, Length: 1 << 30, RKey: mr.RKey()}, to)}
}

// TestSelfSteps checks that a long request is executed completely, in order with later ones, and
// that the QP can be used meanwhile: posting does not wait for it. In SQD it continues to its end.
func TestSelfSteps(t *testing.T) {
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	a := itself(t, open(t, dev), nil)
	mr, requests := steps(t, a)
	from, to := mr.Bytes()[:stepsLen], mr.Bytes()[stepsLen:]
	for name, wr := range requests {
		t.Run(name, func(t *testing.T) {
			again := []verbs.RecvWR{{ID: 1, SGL: requests["read"].SGL}}
			message := wr.Opcode == verbs.WRSendWithImm || wr.Opcode == verbs.WRRDMAWriteWithImm
			// reports whether a request was in progress when Post, Query and Modify returned
			meanwhile := func() bool {
				for i, seed := range from {
					from[i] = seed + byte(i>>12) + 7
				}
				from[stepsLen-1] = 1
				clear(to)
				a.put(64, 1)
				a.put(1024, 0)
				a.post(wr, verbs.Write(a.there(), a.sgl(64, 8)...))
				_, err := a.qp.Query()
				require.NoError(t, err)
				require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState))
				copying := to[stepsLen-1] == 0 // not by Poll, which may let others run until everything is done
				wc := a.wait()
				if message {
					require.Equal(t, []uint64{1, stepsLen, 9}, []uint64{wc.ID, uint64(wc.ByteLen), uint64(wc.Imm)})
					wc = a.wait()
				}
				require.Equal(t, verbs.WCSuccess, wc.Status)
				require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState))
				a.ends(verbs.WCSuccess, 0)
				require.True(t, bytes.Equal(from, to))
				require.EqualValues(t, 1, a.word(1024))
				return copying
			}
			// A busy machine may repeatedly take the processor away until everything is done.
			for n, end := 1, time.Now().Add(3*time.Second); !meanwhile(); n++ {
				require.True(t, n < 100 || time.Now().Before(end), "posting waits for the request")
				if message {
					_, err := a.qp.PostRecv(again)
					require.NoError(t, err)
				}
			}
		})
	}
}

// TestSelfStepsEnd checks that a QP can be moved to ERR, reset and closed in the middle of a long
// request, which then completes once. Nothing is copied afterwards.
func TestSelfStepsEnd(t *testing.T) {
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	ctx := open(t, dev)
	for name, end := range map[string]func(a *end) error{
		"error": func(a *end) error { return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
		"reset": func(a *end) error { return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState) },
		"close": func(a *end) error { return a.qp.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := itself(t, ctx, nil)
			mr, requests := steps(t, a)
			from, to := mr.Bytes()[:stepsLen], mr.Bytes()[stepsLen:]
			for i := range from {
				from[i] = 0xa5
			}
			a.post(requests["write"], verbs.Write(a.there(), a.sgl(64, 8)...))
			require.NoError(t, end(a))
			clear(to)
			if name != "reset" {
				status := map[verbs.WCStatus]int{}
				for range 4 { // two receives
					status[a.wait().Status]++
				}
				require.Equal(t, 4, status[verbs.WCSuccess]+status[verbs.WCWRFlushErr])
				require.GreaterOrEqual(t, status[verbs.WCWRFlushErr], 2)
			}
			require.NoError(t, a.qp.Close())
			require.True(t, bytes.Equal(make([]byte, stepsLen), to))
		})
	}
}

// TestSelfFails checks that a failed request has InfiniBand's status, as has its receive. Earlier
// requests were executed, later ones are flushed, and the QP can be used again after RESET.
func TestSelfFails(t *testing.T) {
	overEach(t, func(t *testing.T, ctx *verbs.Context) {
		for name, c := range map[string]struct {
			request func(a *end) verbs.SendWR
			status  verbs.WCStatus
			recv    verbs.WCStatus // of the posted receive; 0 = it is flushed
			change  func(rtr, rts *verbs.QPAttr)
			access  verbs.AccessFlags // that the QP denies
		}{
			"write, key": {request: func(a *end) verbs.SendWR {
				return verbs.Write(verbs.Remote{Addr: a.mr.Addr(), Length: 1 << 30, RKey: a.mr.RKey() ^ 0x5a5a5a00},
					a.sgl(0, 8)...)
			}, status: verbs.WCRemAccessErr},
			"write, bounds": {request: func(a *end) verbs.SendWR {
				return verbs.Write(verbs.Remote{Addr: a.mr.Addr() + 4092, Length: 1 << 30, RKey: a.mr.RKey()},
					a.sgl(0, 8)...)
			}, status: verbs.WCRemAccessErr},
			"write imm, key": {request: func(a *end) verbs.SendWR {
				return verbs.WriteImm(verbs.Remote{Addr: a.mr.Addr(), Length: 1 << 30, RKey: a.mr.RKey() ^ 0x5a5a5a00},
					1, a.sgl(0, 8)...)
			}, status: verbs.WCRemAccessErr},
			"read, wraps": {request: func(a *end) verbs.SendWR {
				return verbs.Read(verbs.Remote{Addr: ^uint64(0) - 3, Length: 1 << 30, RKey: a.mr.RKey()},
					a.sgl(0, 8)...)
			}, status: verbs.WCRemAccessErr},
			"atomic, key": {request: func(a *end) verbs.SendWR {
				return verbs.FetchAdd(verbs.Remote{Addr: a.mr.Addr(), Length: 1 << 30, RKey: a.mr.RKey() ^ 0x5a5a5a00},
					1, a.sgl(0, 8)[0])
			}, status: verbs.WCRemAccessErr},
			"the QP denies Writes": {request: func(a *end) verbs.SendWR {
				return verbs.Write(a.there(),
					a.sgl(0, 8)...)
			},
				status: verbs.WCRemInvReqErr, access: verbs.AccessRemoteWrite},
			"the QP denies Reads": {request: func(a *end) verbs.SendWR { return verbs.Read(a.there(), a.sgl(0, 8)...) },
				status: verbs.WCRemInvReqErr, access: verbs.AccessRemoteRead},
			"the QP denies atomics": {request: func(a *end) verbs.SendWR {
				return verbs.FetchAdd(a.there(), 1,
					a.sgl(0, 8)[0])
			},
				status: verbs.WCRemInvReqErr, access: verbs.AccessRemoteAtomic},
			"source": {request: func(a *end) verbs.SendWR { return verbs.Send(a.bad(0, 8)...) },
				status: verbs.WCLocProtErr},
			"sink": {request: func(a *end) verbs.SendWR { return verbs.Read(a.there(), a.bad(0, 8)...) },
				status: verbs.WCLocProtErr},
			"no depth": {request: func(a *end) verbs.SendWR { return verbs.Read(a.there(), a.sgl(0, 8)...) },
				status: verbs.WCLocQPOpErr, change: func(_, rts *verbs.QPAttr) { rts.MaxRdAtomic = 0 }},
			"no depth for the peer": {request: func(a *end) verbs.SendWR {
				return verbs.FetchAdd(a.there(), 1,
					a.sgl(0, 8)[0])
			},
				status: verbs.WCLocQPOpErr, change: func(rtr, _ *verbs.QPAttr) { rtr.MaxDestRdAtomic = 0 }},
			"too long": {request: func(a *end) verbs.SendWR { return verbs.Send(a.sgl(0, 65)...) },
				status: verbs.WCRemInvReqErr, recv: verbs.WCLocLenErr},
			"bad receive": {request: func(a *end) verbs.SendWR { return verbs.Send(a.sgl(0, 8)...) },
				status: verbs.WCRemOpErr, recv: verbs.WCLocProtErr},
		} {
			t.Run(name, func(t *testing.T) {
				a := itself(t, ctx, c.change)
				if c.access != 0 {
					require.NoError(t, a.qp.Modify(
						verbs.QPAttr{AccessFlags: allRights &^ (c.access | verbs.AccessLocalWrite)},
						verbs.QPAttrAccessFlags))
				}
				if name == "bad receive" {
					_, err := a.qp.PostRecv([]verbs.RecvWR{{ID: 9, SGL: a.bad(0, 8)}})
					require.NoError(t, err)
				} else {
					a.recv(9)
				}
				a.put(1024, 5)
				wr := c.request(a)
				wr.ID = 2
				first := verbs.Write(verbs.Remote{Addr: a.mr.Addr() + 512, Length: 1 << 30, RKey: a.mr.RKey()},
					a.sgl(1024, 8)...)
				if c.access == verbs.AccessRemoteWrite {
					first = a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 0), 512, a, 1024)
				}
				a.post(first, wr, verbs.SendWR{ID: 3, Opcode: verbs.WRSend},
					a.on(ext.FetchAddWR(verbs.Remote{Addr: 0, Length: 8, RKey: 4}, 1), 80, a, 1024))
				var got []verbs.WCStatus
				for range 5 {
					wc := a.wait()
					switch wc.ID {
					case 0:
						got = append(got, wc.Status)
					case 2:
						require.Equal(t, c.status.String(), wc.Status.String())
						require.Error(t, a.qp.Cause(&wc))
					case 9:
						require.Equal(t, cmp.Or(c.recv, verbs.WCWRFlushErr).String(), wc.Status.String())
					default:
						require.Equal(t, verbs.WCWRFlushErr.String(), wc.Status.String())
					}
				}
				require.Equal(t, []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}, got,
					"what stands before, and the atomic behind")
				require.Equal(t, []uint64{5, 5}, []uint64{a.word(512), a.word(1024)})
				require.ErrorIs(t, a.qp.Err(), c.status)
				require.Equal(t, verbs.QPStateErr, a.qp.State())
				require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
				a.toINIT()
				a.alone(nil)
				a.worksAlone()
			})
		}
	})
}

// TestSelfNotReady checks that a message waits for a receive as often and as long as the QP's
// attributes say.
func TestSelfNotReady(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	limited := func(rtr, rts *verbs.QPAttr) { rtr.MinRNRTimer, rts.RNRRetry = 20, 3 } // three times 10 ms
	a := itself(t, ctx, limited)
	start := time.Now()
	a.post(verbs.Send(a.sgl(0, 8)...))
	for i := range 4 { // posting meanwhile does not count
		a.post(verbs.SendWR{ID: uint64(i + 1), Opcode: verbs.WRSend})
	}
	a.ends(verbs.WCRNRRetryExcErr, 0)
	require.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond)
	a.ends(verbs.WCWRFlushErr, 1, 2, 3, 4)
	require.ErrorIs(t, a.qp.Err(), verbs.WCRNRRetryExcErr)

	b := itself(t, ctx, func(rtr, rts *verbs.QPAttr) { rtr.MinRNRTimer, rts.RNRRetry = 0, 1 }) // 655 ms
	b.post(verbs.Send(b.sgl(0, 8)...))
	b.recv(5)
	b.ends(verbs.WCSuccess, 5, 0)
	b.post(verbs.Send(b.sgl(0, 8)...)) // the first wait no longer counts
	b.recv(6)
	b.ends(verbs.WCSuccess, 6, 0)
}

// TestSelfLeaves checks that waiting requests are flushed when the QP goes to ERR or is closed, and
// dropped by RESET, and that nothing is executed in SQD.
func TestSelfLeaves(t *testing.T) {
	overEach(t, func(t *testing.T, ctx *verbs.Context) {
		a := itself(t, ctx, nil)
		a.post(verbs.Send(a.sgl(0, 8)...), verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
		require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		a.ends(verbs.WCWRFlushErr, 0, 1)
		a.recv(2)
		a.ends(verbs.WCWRFlushErr, 2)
		for range 2 {
			require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			a.toINIT()
			a.recv(3)
			a.alone(nil)
			a.post(verbs.Send(a.sgl(0, 8)...))
			a.ends(verbs.WCSuccess, 3, 0)
			a.post(verbs.Send(a.sgl(0, 8)...))
		}
		require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState))
		a.recv(4)
		a.post(verbs.SendWR{ID: 5, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		n, err := a.cq.Poll(make([]verbs.WC, 1))
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState))
		a.ends(verbs.WCSuccess, 4, 0)
		require.NoError(t, a.qp.Close())
		a.ends(verbs.WCWRFlushErr, 5)

		// Afterwards it can be brought up with another QP, and vice versa.
		c, d := handPair(t, ctx, ctx)
		c.alone(nil)
		c.worksAlone()
		require.NoError(t, c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		c.toINIT()
		c.toRTS(d.qp.Num())
		d.toRTS(c.qp.Num())
		works(t, c, d)
		require.NoError(t, c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		c.toINIT()
		c.alone(nil)
		c.worksAlone()
	})
}

// TestSelfCalled checks that a caller that uses such a QP's own name is refused, and that a device
// without a port can have such QPs too.
func TestSelfCalled(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	a := itself(t, ctx, nil)
	other := newEnd(t, ctx, verbs.QPConfig{})
	other.toINIT()
	require.NoError(t, other.qp.Modify(other.rtr(2), rtrMask)) // so that the device listens
	name := wire.Name{GID: verbs.GIDFromAddr(home), QPN: a.qp.Num()}
	call := wire.Call{From: name, To: name, ToPSN: wire.KnownPSN(rts.SQPSN)}
	err := caller(t, open(t, in), a.qp.Num(),
		(&wire.Greeting{Flags: wire.FlagHand, Private: call.Append(nil)}).Append(nil))
	require.Equal(t, wire.NoQP, refusalOf(t, err))
	a.worksAlone()

	_, none := newIWARP(t, 0, ibcompat.Config{Rendezvous: taken(t, 0, ibcompat.RendezvousPorts)})
	b := itself(t, open(t, none), nil)
	b.worksAlone()
}

// TestSelfMany checks that goroutines that post and poll concurrently lose nothing.
func TestSelfMany(t *testing.T) {
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	a := itself(t, open(t, dev), nil)
	const n = 100
	done := make(chan error, 1)
	go func() {
		for i := range n {
			for {
				_, err := a.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: a.sgl(2048, 8)}})
				if err == nil {
					break
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		done <- nil
	}()
	go func() {
		for i := range n {
			wr := verbs.SendImm(uint32(i), a.sgl(0, 8)...)
			for {
				if k, _ := a.qp.PostSend([]verbs.SendWR{wr}); k == 1 {
					break
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		done <- nil
	}()
	sends, recvs := 0, 0
	for sends+recvs < 2*n {
		wc := a.wait()
		require.Equal(t, verbs.WCSuccess, wc.Status)
		if wc.Opcode == verbs.WCSend {
			sends++
			continue
		}
		require.Equal(t, []uint64{uint64(recvs), uint64(recvs)}, []uint64{wc.ID, uint64(wc.Imm)})
		recvs++
	}
	<-done
	<-done
}

// TestSelfAllocNothing checks that a request does not allocate.
func TestSelfAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	a := itself(t, open(t, dev), nil)
	recv := []verbs.RecvWR{{SGL: a.sgl(2048, 64)}}
	list := []verbs.SendWR{verbs.Send(a.sgl(0, 8)...), verbs.Write(a.there(), a.sgl(0, 8)...),
		verbs.Read(a.there(), a.sgl(0, 8)...), a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 72, a, 1024)}
	var wcs [5]verbs.WC
	run := func() {
		_, _ = a.qp.PostRecv(recv)
		_, _ = a.qp.PostSend(list)
		if n, err := a.cq.Poll(wcs[:]); n != len(wcs) || err != nil {
			panic(n)
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}
