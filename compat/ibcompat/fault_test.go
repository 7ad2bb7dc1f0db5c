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

// bad is memory of an end that has no such key.
func (e *end) bad(off, n int) []verbs.SGE {
	sgl := e.sgl(off, n)
	sgl[0].LKey ^= 0x5a5a5a00
	return sgl
}

// TestOneFailure: one request has failed, and what is behind it is flushed, also if there is
// something wrong with that too.
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

// TestBadLongReceive: a message that arrives in parts, for a receive whose memory is not good,
// fails on both sides as a short one does. Its sender may have sent several parts by then.
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

// TestModifyKeepsRights: a change of something else than the rights of a connected QP leaves them
// as they are.
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

// TestNotTaken: a message that has not been taken is not counted as such, whatever comes behind it.
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
	h, _ := r.hears(wire.Answer, wire.Bye) // Bye if the engine takes the last message before it answers the first
	require.EqualValues(t, 1, h.Taken)
	require.NoError(t, r.id.Disconnect())
	b.ends(verbs.WCWRFlushErr, 0, 1)
}

// TestPeerVanishes: the end of a peer without a last message, before and after its hello, in the
// middle of everything, flushes what is under way; nothing waits for more.
func TestPeerVanishes(t *testing.T) {
	for _, hello := range []bool{false, true} {
		t.Run(fmt.Sprintf("hello=%v", hello), func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 1)
			to := verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}
			if hello {
				r.greets()
				r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Ack, Adverts: 1, Taken: 1})))
			}
			// A Send and a Write that are not confirmed, an atomic that is not answered, and a Send
			// that waits for a receive.
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

// TestSilentPeer: this side can end a connection whose peer has not said its hello, at once, and
// one whose peer does not say its last message, after a while.
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

// TestCloseUnderWay: a connection is closed while both sides send, at any moment; what one side has
// confirmed the other has received, and every request completes once.
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

// TestShortReads: Reads of a device of the kernel that cross a page are done in two parts, because
// its driver may answer them with wrong bytes; the program gets the same bytes and one completion.
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
