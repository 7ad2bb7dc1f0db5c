// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// newIWARP returns a user-space RNIC without some operations, and the same RNIC wrapped.
func newIWARP(t testing.TB, without verbs.OpSet, cfg ibcompat.Config) (in, dev *verbs.Device) {
	t.Helper()
	nic, err := usiw.New(usiw.Config{Without: without})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	in = nic.Device()
	t.Cleanup(func() { require.NoError(t, in.CloseShared()) })
	dev, err = ibcompat.Wrap(in, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return in, dev
}

// rnics are pairs of RNICs: with RFC 7306, without, and one of each. A connection of the mixed pair
// behaves like one without.
var rnics = []struct {
	name            string
	active, passive verbs.OpSet // operations that they lack
	native          bool
}{
	{"full", 0, 0, true},
	{"plain", ext.Operations, ext.Operations, false},
	{"mixed", 0, ext.Operations, false},
}

// overIWARP runs a test on each pair.
func overIWARP(t *testing.T, test func(t *testing.T, native bool, active, passive *verbs.Context)) {
	for _, c := range rnics {
		t.Run(c.name, func(t *testing.T) {
			_, active := newIWARP(t, c.active, ibcompat.Config{})
			_, passive := newIWARP(t, c.passive, ibcompat.Config{})
			test(t, c.native, open(t, active), open(t, passive))
		})
	}
}

// TestVerbsIWARP runs the conformance suite, judged as InfiniBand.
func TestVerbsIWARP(t *testing.T) {
	subjects := map[string][]string{"plain": verbstest.Subjects(),
		"full": {"Device", "Send", "Write", "Read", "Atomic", "Immediate", "Order", "List", "QP", "Depth",
			"Disconnect", "Alloc"}, "mixed": {"Atomic", "Immediate", "Order", "List"}}
	for _, c := range rnics {
		t.Run(c.name, func(t *testing.T) {
			verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
				_, active := newIWARP(t, c.active, ibcompat.Config{})
				_, passive := newIWARP(t, c.passive, ibcompat.Config{})
				return verbstest.Fabric{Active: active, Passive: passive, Listen: "127.0.0.1:0"}
			}, subjects[c.name]...)
		})
	}
}

func TestSupportIWARP(t *testing.T) {
	overIWARP(t, func(t *testing.T, native bool, active, passive *verbs.Context) {
		a, b := connect(t, active, passive, verbs.QPConfig{})
		// the hello has arrived by then
		a.post(verbs.Read(verbs.Remote{Addr: b.mr.Addr(), Length: 1 << 30, RKey: b.mr.RKey()}, a.sgl(0, 8)...))
		a.ends(verbs.WCSuccess, 0)
		for op, want := range map[verbs.Op]ext.Support{verbs.OpSend: ext.Emulated, verbs.OpSendImm: ext.Emulated,
			verbs.OpWrite: ext.Native, verbs.OpRead: ext.Native, verbs.OpImm64: ext.None, verbs.OpBindMW: ext.None} {
			s, why := ibcompat.Support(a.qp, op)
			require.Equal(t, want, s, "%v: %s", op, why)
			require.NotEmpty(t, why)
			require.Equal(t, want, ext.SupportOf(active, op))
		}
		want := ext.Emulated
		if native {
			want = ext.Native
		}
		for _, op := range []verbs.Op{verbs.OpWriteImm, verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd,
			verbs.OpMaskedCmpSwap} {
			s, why := ibcompat.Support(a.qp, op)
			require.Equal(t, want, s, "%v: %s", op, why)
		}
	})
}

// TestListIWARP posts a list with every operation before the peer has a receive: the requests after
// the Send wait for it, and all are executed in order.
func TestListIWARP(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		a, b := connect(t, active, passive, verbs.QPConfig{})
		b.put(1024, 100)
		a.put(64, 500)
		copy(a.mr.Bytes(), "hello")
		to := verbs.Remote{Addr: b.mr.Addr() + 1024, Length: 1 << 30, RKey: b.mr.RKey()}
		cs := ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, 1, 0xff, 7, 0xff)
		cs.Compare = 501
		list := []verbs.SendWR{verbs.SendImm(1, a.sgl(0, 5)...),
			a.on(ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, 1, 1<<63), 72, b, 1024),
			verbs.Write(to, a.sgl(64, 8)...), a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 96, b, 1024),
			a.on(cs, 80, b, 1024), verbs.Read(to, a.sgl(88, 8)...),
			verbs.WriteImm(verbs.Remote{Addr: b.mr.Addr() + 512, Length: 1 << 30, RKey: b.mr.RKey()}, 2,
				a.sgl(0, 5)...), verbs.Send()}
		for i := range list {
			list[i].ID = uint64(i)
		}
		a.post(list...)
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, uint64(100), b.word(1024), "nothing goes past a Send that waits")
		for i := range 3 {
			b.recv(uint64(70 + i))
		}
		a.ends(verbs.WCSuccess, 0, 1, 2, 3, 4, 5, 6, 7)
		for i, want := range []verbs.WC{
			{ID: 70, Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, ByteLen: 5, Imm: 1, Imm64: 1 << 32},
			{ID: 71, Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ByteLen: 5, Imm: 2, Imm64: 2 << 32},
			{ID: 72, Opcode: verbs.WCRecv},
		} {
			want.QPNum = b.qp.Num()
			require.Equal(t, want, b.wait(), i)
		}
		require.Equal(t, []uint64{100, 500, 501, 0x107, 0x107},
			[]uint64{a.word(72), a.word(96), a.word(80), a.word(88), b.word(1024)})
		require.Equal(t, "hello", string(b.mr.Bytes()[512:517]))
	})
}

// TestNotReady checks that a Send for which the peer has no receive waits as long as the peer has
// requested, by InfiniBand's retry count and timer, and then ends the connection. If a receive is
// posted in time it does not.
func TestNotReady(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for _, ready := range []bool{true, false} {
			a, b := connectWith(t, active, passive, verbs.QPConfig{}, cm.ConnParam{RNRRetryCount: 3, MinRNRTimer: 14})
			if ready {
				b.recv(1)
			}
			a.post(verbs.Write(verbs.Remote{Addr: b.mr.Addr(), Length: 1 << 30, RKey: b.mr.RKey()}, a.sgl(0, 8)...),
				verbs.Send(a.sgl(0, 8)...), verbs.Send())
			a.ends(verbs.WCSuccess, 0)
			if ready {
				a.ends(verbs.WCSuccess, 0)
				b.ends(verbs.WCSuccess, 1)
			}
			a.ends(verbs.WCRNRRetryExcErr, 0)
			if !ready {
				a.ends(verbs.WCWRFlushErr, 0)
			}
			b.over()
			require.ErrorIs(t, a.qp.Err(), verbs.WCRNRRetryExcErr)
		}
	})
}

// connectWith is connect with the passive side's parameters.
func connectWith(t testing.TB, active, passive *verbs.Context, cfg verbs.QPConfig, param cm.ConnParam) (a, b *end) {
	t.Helper()
	ctx := soon(t)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: passive})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	a, b = newEnd(t, active, cfg), newEnd(t, passive, cfg)
	a.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: a.ctx})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- a.id.Connect(ctx, a.qp, cm.ConnParam{}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	b.id, err = req.Accept(ctx, b.qp, param)
	require.NoError(t, err)
	require.NoError(t, <-done)
	t.Cleanup(func() { require.NoError(t, a.id.Close()); require.NoError(t, b.id.Close()) })
	return a, b
}

// TestLongMessages sends messages of sizes around the eager limit, gathered from and scattered to
// several elements, in both directions at once. The receives are ones that the peer may write, and
// ones of a QP that allows no Writes.
func TestLongMessages(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for _, writes := range []bool{true, false} {
			ctx := soon(t)
			ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: passive})
			require.NoError(t, err)
			cfg := verbs.QPConfig{Cap: verbs.QPCap{MaxSendSGE: 4, MaxRecvSGE: 4}}
			a, b := newEnd(t, active, cfg), newEnd(t, passive, cfg)
			if !writes {
				require.NoError(t, b.qp.Modify(
					verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: verbs.AccessRemoteRead},
					verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
			}
			join(t, ln, a, b)
			require.NoError(t, ln.Close())
			const most = 300_000
			type side struct {
				*end
				from, to *verbs.MR
			}
			one, two := side{end: a}, side{end: b}
			for _, s := range []*side{&one, &two} {
				s.from, err = s.pd.AllocMR(most, 0)
				require.NoError(t, err)
				defer s.from.Close()
				s.to, err = s.pd.AllocMR(most, verbs.AccessLocalWrite)
				require.NoError(t, err)
				defer s.to.Close()
			}
			rng := rand.New(rand.NewPCG(1, 2))
			split := func(mr *verbs.MR, n int) (sgl []verbs.SGE) {
				at := 0
				for i := range 4 {
					k := n - at
					if i < 3 {
						k = rng.IntN(k + 1)
					}
					sge, err := mr.SGE(at, k)
					require.NoError(t, err)
					sgl = append(sgl, sge)
					at += k
				}
				return sgl
			}
			for _, n := range []int{0, 1, 4095, 4096, 4097, 8192, 8193, 70_000, most} {
				for _, s := range []*side{&one, &two} {
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(rng.Uint32())
					}
					regmem.Place(s.from.Bytes()[:n], data)
					_, err := s.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: split(s.to, most)}})
					require.NoError(t, err)
				}
				one.post(verbs.Send(split(one.from, n)...))
				two.post(verbs.Send(split(two.from, n)...))
				for _, s := range []*side{&one, &two} {
					for range 2 {
						wc := s.wait()
						require.NoError(t, wc.Err())
						if wc.IsRecv() {
							require.EqualValues(t, n, wc.ByteLen)
						}
					}
				}
				require.True(t, bytes.Equal(one.from.Bytes()[:n], two.to.Bytes()[:n]), "%d bytes", n)
				require.True(t, bytes.Equal(two.from.Bytes()[:n], one.to.Bytes()[:n]), "%d bytes", n)
			}
		}
	})
}

// TestPeerSleeps checks that operations in which the peer's program takes no part do not need it to
// poll or wait; the peer's receives are filled too.
func TestPeerSleeps(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		a, b := connect(t, active, passive, verbs.QPConfig{})
		for i := range 20 {
			b.recv(uint64(i))
		}
		for range 20 {
			a.post(verbs.Send(a.sgl(0, 8)...), a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 72, b, 1024))
			a.ends(verbs.WCSuccess, 0, 0)
		}
		require.Equal(t, uint64(20), b.word(1024))
	})
}
