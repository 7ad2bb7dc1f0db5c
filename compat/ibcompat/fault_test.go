// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// bad returns memory of the end with an invalid key.
func (e *end) bad(off, n int) []verbs.SGE {
	sgl := e.sgl(off, n)
	sgl[0].LKey ^= 0x5a5a5a00
	return sgl
}

// TestOneFailure checks that one request fails and later ones are flushed, even if they are faulty
// too.
func TestOneFailure(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for name, run := range map[string]func(a, b *end){
			"peer": func(a, b *end) {
				atomic := verbs.FetchAdd(
					verbs.Remote{Addr: b.mr.Addr(), Length: 1 << 30, RKey: b.mr.RKey() ^ 0x5a5a5a00}, 1, a.sgl(0, 8)[0])
				a.post(atomic, verbs.Send(a.bad(0, 8)...), verbs.Send(a.bad(0, 8)...))
				a.ends(verbs.WCRemAccessErr, 0)
				a.ends(verbs.WCWRFlushErr, 0, 0)
			},
			"too long": func(a, b *end) {
				b.recv(1)
				inline := verbs.Send(a.bad(0, 8)...)
				inline.Flags |= verbs.SendInline
				a.post(verbs.Send(a.sgl(0, 65)...), verbs.Send(a.bad(0, 8)...), inline)
				a.ends(verbs.WCRemInvReqErr, 0)
				a.ends(verbs.WCWRFlushErr, 0, 0)
				b.ends(verbs.WCLocLenErr, 1)
			},
			"disconnect": func(a, b *end) {
				inline := verbs.Send(a.bad(0, 8)...)
				inline.Flags |= verbs.SendInline
				a.post(verbs.Send(a.sgl(0, 8)...), inline) // the first waits for a receive
				require.NoError(t, a.id.Disconnect())
				a.ends(verbs.WCWRFlushErr, 0, 0)
				a.post(inline)
				a.ends(verbs.WCWRFlushErr, 0)
			},
		} {
			t.Run(name, func(t *testing.T) {
				a, b := connect(t, active, passive, verbs.QPConfig{Cap: verbs.QPCap{MaxInlineData: 64}})
				run(a, b)
			})
		}
	})
}

// TestBadLongReceive checks that a message in Parts for a receive with invalid memory fails on both
// sides, as a short one does, even if several Parts were sent by then.
func TestBadLongReceive(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for _, n := range []int{64, 10_000, 60_000} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				a, b := connect(t, active, passive, verbs.QPConfig{})
				from, err := a.pd.AllocMR(60_000, 0)
				require.NoError(t, err)
				defer from.Close()
				sge, err := from.SGE(0, n)
				require.NoError(t, err)
				to := b.bad(0, 4096)
				to[0].Length = 60_000
				_, err = b.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: to}})
				require.NoError(t, err)
				a.post(verbs.Send(sge), verbs.Send(sge))
				a.ends(verbs.WCRemOpErr, 0)
				a.ends(verbs.WCWRFlushErr, 0)
				b.ends(verbs.WCLocProtErr, 1)
			})
		}
	})
}

// TestModifyKeepsRights checks that changing other attributes of a connected QP preserves its
// access rights.
func TestModifyKeepsRights(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		a, b := connect(t, active, passive, verbs.QPConfig{})
		require.NoError(t, b.qp.Modify(verbs.QPAttr{MinRNRTimer: 3}, verbs.QPAttrMinRNRTimer))
		a.post(a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 72, b, 1024),
			verbs.Write(verbs.Remote{Addr: b.mr.Addr(), Length: 1 << 30, RKey: b.mr.RKey()}, a.sgl(0, 8)...))
		a.ends(verbs.WCSuccess, 0, 0)
		require.Equal(t, uint64(1), b.word(1024))

		require.NoError(t, b.qp.Modify(verbs.QPAttr{AccessFlags: verbs.AccessRemoteWrite}, verbs.QPAttrAccessFlags))
		a.post(a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 72, b, 1024))
		wc := a.wait()
		require.Error(t, wc.Err())
		require.Equal(t, uint64(1), b.word(1024))
	})
}

// TestNotTaken checks that a message that was not taken is not counted, whatever follows it.
func TestNotTaken(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 2)
	r.greets()
	msg := message(wire.Header{Kind: wire.Atomic})
	list := [][]byte{
		(&wire.AtomicRequest{RKey: 0x77, Addr: 8, Operand: 1}).Append(msg), // it fails
		message(wire.Header{Kind: wire.Data, Value: 1}, 0xee),
		message(wire.Header{Kind: wire.Bye}),
	}
	at := rawSlots * rawLen
	var wrs []verbs.SendWR
	for _, msg := range list {
		sge, err := r.mem.SGE(at, copy(r.mem.Bytes()[at:], msg))
		require.NoError(t, err)
		at += len(msg)
		wrs = append(wrs, verbs.Send(sge))
	}
	r.post(wrs...)
	h, _ := r.hears(wire.Answer, wire.Bye) // Bye if the engine reads the last message before it answers the first
	require.EqualValues(t, 1, h.Taken)
	require.NoError(t, r.id.Disconnect())
	b.ends(verbs.WCWRFlushErr, 0, 1)
}

// TestPeerVanishes checks that if the peer disappears without a last message, before or after its
// hello, outstanding requests are flushed and nothing waits any longer.
func TestPeerVanishes(t *testing.T) {
	for _, hello := range []bool{false, true} {
		t.Run(fmt.Sprintf("hello=%v", hello), func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 1)
			to := verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}
			if hello {
				r.greets()
				r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Ack, Adverts: 1, Taken: 1})))
			}
			// An unconfirmed Send and Write, an unanswered atomic, and a Send that waits for a
			// receive.
			b.post(verbs.Send(b.sgl(0, 8)...), verbs.Write(to, b.sgl(0, 8)...), verbs.FetchAdd(to, 1, b.sgl(64, 8)[0]),
				verbs.Send(b.sgl(0, 8)...))
			if hello {
				r.hears(wire.Atomic)
			}
			require.NoError(t, r.qp.Close())
			for range 5 {
				require.Equal(t, verbs.WCWRFlushErr.String(), b.wait().Status.String())
			}
			b.over()
			require.Error(t, b.qp.Err())
		})
	}
}

// TestSilentPeer checks that this side can close a connection immediately if the peer never sent
// its hello, and after a timeout if it never sends its last message.
func TestSilentPeer(t *testing.T) {
	for _, hello := range []bool{false, true} {
		t.Run(fmt.Sprintf("hello=%v", hello), func(t *testing.T) {
			t.Parallel()
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 1)
			if hello {
				r.greets()
			}
			b.post(verbs.Send(b.sgl(0, 8)...))
			closed := make(chan error, 1)
			go func() { closed <- b.id.CloseContext(soon(t)) }()
			for range 2 {
				require.Equal(t, verbs.WCWRFlushErr.String(), b.wait().Status.String())
			}
			require.NoError(t, <-closed)
		})
	}
}

// TestCloseUnderWay closes a connection at any moment while both sides send. Everything confirmed
// to one side was received by the other, and every request completes once.
func TestCloseUnderWay(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for round := range 30 {
			const sends = 40
			a, b := connect(t, active, passive, verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: sends, MaxRecvWR: sends}})
			for i := range sends {
				a.recv(uint64(100 + i))
				b.recv(uint64(100 + i))
			}
			for i := range sends {
				for _, e := range []*end{a, b} {
					wr := verbs.Send(e.sgl(0, 8)...)
					wr.ID = uint64(i)
					e.post(wr)
				}
				if i == round {
					go func(id *cm.ID) { _ = id.Disconnect() }([]*end{a, b}[round%2].id)
				}
			}
			var sent, received [2]int
			for k, e := range []*end{a, b} {
				for range 2 * sends {
					switch wc := e.wait(); {
					case wc.Status != verbs.WCSuccess:
						require.Equal(t, verbs.WCWRFlushErr.String(), wc.Status.String())
					case wc.IsRecv():
						require.EqualValues(t, 100+received[k], wc.ID)
						received[k]++
					default:
						require.EqualValues(t, sent[k], wc.ID)
						sent[k]++
					}
				}
			}
			require.LessOrEqual(t, sent[0], received[1], "round %d", round)
			require.LessOrEqual(t, sent[1], received[0], "round %d", round)
		}
	})
}

// TestShortReads checks that Reads from a kernel device that cross a page are split in two, because
// its driver may return wrong bytes for them. The program gets the right bytes and one completion.
func TestShortReads(t *testing.T) {
	const page = 4096
	for _, flags := range []uint8{0, wire.HelloLax} {
		r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
		hello := rawHello
		hello.Flags = flags
		r.say(hello.Append(nil))
		r.hears(wire.Credit)
		require.Zero(t, r.mem.Addr()%page)
		edge := r.mem.Bytes()[rawSlots*rawLen-page-64:][:128]
		for i := range edge {
			edge[i] = byte(i + 1)
		}
		for n := 2; n <= 40; n++ {
			for first := 1; first < n; first += 7 {
				from := verbs.Remote{Addr: r.mem.Addr() + rawSlots*rawLen - page - uint64(first), Length: 1 << 30,
					RKey: r.mem.RKey()}
				b.post(verbs.Read(from, b.sgl(0, n)...))
				require.Equal(t, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: uint32(n), QPNum: b.qp.Num()}, b.wait())
				require.Equal(t, edge[64-first:][:n], b.mr.Bytes()[:n], "%d bytes, %d of them in the first page", n,
					first)
			}
		}
	}
}
