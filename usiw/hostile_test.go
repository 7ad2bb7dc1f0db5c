// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// kind is a kind of message that a peer may send, and its effect.
type kind struct {
	name string
	// send prepares the NIC's side and returns the message.
	send func(v *faultEnv) []byte
	// done checks the effect of the message.
	done func(v *faultEnv)
}

// fence waits until the NIC has handled everything sent before. msn is the next message number on
// the Read Request queue.
func (v *faultEnv) fence(msn uint32) {
	v.t.Helper()
	v.p.send(rawRead(msn, rdmap.ReadRequest{SinkSTag: 0xfe}))
	u := v.p.read()
	h, err := ddp.ParseTagged(u)
	require.NoError(v.t, err)
	require.Equal(v.t, ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpReadResponse), STag: 0xfe}, h)
}

// receivedOne checks the completion of the only receive, and its memory.
func (v *faultEnv) receivedOne(want verbs.WC, buf, content []byte) {
	v.t.Helper()
	want.ID, want.QPNum = 1, v.qp.Num()
	require.Equal(v.t, want, v.received())
	require.Equal(v.t, content, buf)
}

func kinds() []kind {
	var buf []byte // memory of the current message's receive
	var window uint32
	a5 := bytes.Repeat([]byte{0xa5}, 8)
	old := binary.NativeEndian.Uint64(a5)
	post := func(v *faultEnv) { buf = v.recv(8)[0] }
	return []kind{
		{"Write", func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr()+8, eight)
		}, func(v *faultEnv) {
			v.fence(1)
			require.Equal(v.t, bytes.Join([][]byte{a5, eight, a5}, nil), v.all.Bytes()[:24])
		}},
		{"empty Write", func(*faultEnv) []byte { return rawTagged(rdmap.OpWrite, 0xffffffff, ^uint64(0), nil) },
			func(v *faultEnv) {
				v.fence(1)
				v.intact()
			}},
		{"Send", func(v *faultEnv) []byte { post(v); return rawSend(1, eight) }, func(v *faultEnv) {
			v.receivedOne(verbs.WC{Opcode: verbs.WCRecv, ByteLen: 8}, buf, eight)
		}},
		{"Send of 5 bytes", func(v *faultEnv) []byte { post(v); return rawSend(1, eight[:5]) }, func(v *faultEnv) {
			v.receivedOne(verbs.WC{Opcode: verbs.WCRecv, ByteLen: 5}, buf, append(eight[:5:5], a5[:3]...))
		}},
		{"Send with Solicited Event", func(v *faultEnv) []byte {
			post(v)
			return rawUntagged(rdmap.OpSendSE, 0, 1,
				eight)
		}, func(v *faultEnv) {
			v.receivedOne(verbs.WC{Opcode: verbs.WCRecv, ByteLen: 8}, buf, eight)
		}},
		{"Send with Invalidate", func(v *faultEnv) []byte {
			post(v)
			window = v.window()
			return rawSegment(rdmap.OpSendInv, ddp.Untagged{MSN: 1, Last: true, InvSTag: window}, eight)
		}, func(v *faultEnv) {
			v.receivedOne(verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCWithInv, InvalidatedRKey: window, ByteLen: 8},
				buf, eight)
		}},
		{"Send with Solicited Event and Invalidate", func(v *faultEnv) []byte {
			post(v)
			window = v.window()
			return rawSegment(rdmap.OpSendSEInv, ddp.Untagged{MSN: 1, Last: true, InvSTag: window}, nil)
		}, func(v *faultEnv) {
			v.receivedOne(verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCWithInv, InvalidatedRKey: window}, buf, a5)
		}},
		{"Immediate Data", func(v *faultEnv) []byte { post(v); return rawImm(1, 0x1122334455667788) },
			func(v *faultEnv) {
				v.receivedOne(verbs.WC{Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm, ByteLen: 8, Imm: 0x11223344,
					Imm64: 0x1122334455667788}, buf, a5)
			}},
		{"Immediate Data with Solicited Event",
			func(v *faultEnv) []byte { post(v); return rawUntagged(rdmap.OpImmediateSE, 0, 1, eight) },
			func(v *faultEnv) {
				v.receivedOne(verbs.WC{Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm, ByteLen: 8, Imm: 0x01020304,
					Imm64: 0x0102030405060708}, buf, a5)
			}},
		{"Read Request", func(v *faultEnv) []byte { return rawRead(1, fetch(v.all, 8, 16)) }, func(v *faultEnv) {
			require.Equal(v.t, rawTagged(rdmap.OpReadResponse, 1, 2, append(a5, a5...)), v.p.read())
			v.intact()
		}},
		{"Read Response", func(v *faultEnv) []byte {
			v.reads(8)
			return rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr(), eight)
		}, func(v *faultEnv) {
			require.Equal(v.t, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 8, QPNum: v.qp.Num()}, v.sent())
			require.Equal(v.t, append(eight[:8:8], a5...), v.sink.Bytes()[:16])
		}},
		{"FetchAdd", func(v *faultEnv) []byte { return rawAtomic(1, add(v.all, 8)) }, func(v *faultEnv) {
			require.Equal(v.t, rawAtomicResponse(1, 3, old), v.p.read())
			require.Equal(v.t, [3]uint64{old, old + 1, old},
				[3]uint64{word64(v.all.Bytes()), word64(v.all.Bytes()[8:]), word64(v.all.Bytes()[16:])})
		}},
		{"CmpSwap", func(v *faultEnv) []byte {
			r := add(v.all, 8)
			r.Op, r.AddSwap, r.AddSwapMask, r.Compare, r.CompareMask = rdmap.AtomicCmpSwap, 77, ^uint64(0), old,
				^uint64(0)
			return rawAtomic(1, r)
		}, func(v *faultEnv) {
			require.Equal(v.t, rawAtomicResponse(1, 3, old), v.p.read())
			require.Equal(v.t, [3]uint64{old, 77, old}, [3]uint64{word64(v.all.Bytes()), word64(v.all.Bytes()[8:]),
				word64(v.all.Bytes()[16:])})
		}},
		{"Atomic Response", func(v *faultEnv) []byte { v.atomics(1); return rawAtomicResponse(1, v.ids[0], 99) },
			func(v *faultEnv) {
				require.Equal(v.t, verbs.WC{Opcode: verbs.WCFetchAdd, ByteLen: 8, QPNum: v.qp.Num()}, v.sent())
				require.EqualValues(v.t, 99, word64(v.sink.Bytes()))
			}},
		{"Terminate", func(v *faultEnv) []byte { return rawTerminate(rdmap.Terminate{Layer: 0, Type: 2, Code: 8}) },
			func(v *faultEnv) {
				v.p.eof()
				v.p.close()
				v.ended(terminated(0, 2, 8, true))
			}},
	}
}

// window binds a type 2 window to a separate region and returns its key.
func (v *faultEnv) window() uint32 {
	v.t.Helper()
	mr := v.mr(64, 0x700, rawAccess|verbs.AccessMWBind)
	mw, err := v.pd.AllocMW(verbs.MWType2)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { require.NoError(v.t, mw.Close()) })
	v.post(verbs.SendWR{Opcode: verbs.WRBindMW, RKey: mw.NextRKey(),
		Bind: &verbs.MWBind{MW: mw, MR: mr, Addr: mr.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}})
	require.Equal(v.t, verbs.WC{Opcode: verbs.WCBindMW, QPNum: v.qp.Num()}, v.sent())
	return mw.RKey()
}

// TestHostileTrickle sends every kind of message one byte at a time.
func TestHostileTrickle(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.p.trickle(rawFPDU(k.send(v), true))
			k.done(v)
		})
	}
}

// TestHostileSplit sends every kind of message in two parts, cut at every byte.
func TestHostileSplit(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			for cut := 1; ; cut++ {
				whole := false
				t.Run(fmt.Sprint(cut), func(t *testing.T) {
					v := newFaultEnv(n.as(t), rawOpts{})
					b := rawFPDU(k.send(v), true)
					v.p.write(b[:cut])
					for range 5 { // lets the NIC see the first part
						runtime.Gosched()
					}
					v.p.write(b[cut:])
					k.done(v)
					whole = cut == len(b)-1
				})
				if whole || t.Failed() {
					break
				}
			}
		})
	}
}

// TestHostilePacked sends many messages in one write, so that TCP segments contain several FPDUs
// and FPDUs span segments.
func TestHostilePacked(t *testing.T) {
	const rounds = 100
	n := newRawNIC(t, usiw.Config{})
	frame := rawRequest()
	frame.Enhanced.ORD = 0x3fff
	v := newFaultEnv(n, rawOpts{frame: &frame, cap: verbs.QPCap{MaxRecvWR: 2 * rounds}})
	big := v.mr(rounds*1000, 0x40000, rawAccess)
	var want []byte
	var msgs [][]byte
	for i := range rounds {
		_, err := v.qp.PostRecv([]verbs.RecvWR{{ID: uint64(2 * i), SGL: []verbs.SGE{v.sge(v.local)}},
			{ID: uint64(2*i + 1)}})
		require.NoError(t, err)
		body := pattern(1000-i%4, byte(i))
		want = append(append(want, body...), bytes.Repeat([]byte{0xa5}, i%4)...)
		msgs = append(msgs, rawTagged(rdmap.OpWrite, big.RKey(), big.Addr()+uint64(1000*i), body),
			rawSend(uint32(2*i+1), eight),
			rawTagged(rdmap.OpWrite, big.RKey(), big.Addr()+uint64(1000*i), nil), rawImm(uint32(2*i+2), uint64(i)))
	}
	v.p.send(msgs...)
	for i := range 2 * rounds {
		wc := v.received()
		require.EqualValues(t, i, wc.ID)
		require.Equal(t, verbs.WCSuccess, wc.Status)
		if i%2 == 1 {
			require.Equal(t, verbs.WCRecvRDMAWithImm, wc.Opcode)
			require.EqualValues(t, i/2, wc.Imm64)
			require.Zero(t, wc.ByteLen)
		}
	}
	require.Equal(t, want, big.Bytes())

	// Requests too; the agreed depth limits how many at once.
	msgs = msgs[:0]
	for i := range uint32(64) {
		msgs = append(msgs, rawAtomic(2*i+1, add(v.all, 0)), rawRead(2*i+2, fetch(v.all, 0, 8)))
	}
	v.p.send(msgs...)
	old := binary.NativeEndian.Uint64(bytes.Repeat([]byte{0xa5}, 8))
	for i := range uint32(64) {
		require.Equal(t, rawAtomicResponse(i+1, 3, old+uint64(i)), v.p.read())
		// The Read returns what memory holds when the response is built.
		h, err := ddp.ParseTagged(v.p.read())
		require.NoError(t, err)
		require.Equal(t, ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpReadResponse), STag: 1, TO: 2}, h)
	}
}

// TestHostileCRC corrupts every byte after the length in every kind of message: nothing is placed
// and nothing completes.
func TestHostileCRC(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			for at, whole := mpa.LengthLen, false; !whole; at++ {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					v := newFaultEnv(n.as(t), rawOpts{})
					b := rawFPDU(k.send(v), true)
					b[at] ^= 1 << (at % 8)
					v.p.write(append(b, rawFPDU(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), true)...))
					v.p.terminate(2, 0, 2, quoteNone, nil)
					v.p.close()
					v.ended(terminated(2, 0, 2, false))
					v.intact()
					var wcs [4]verbs.WC
					for _, cq := range []*verbs.CQ{v.scq, v.rcq} {
						m, err := cq.Poll(wcs[:])
						require.NoError(t, err)
						for _, wc := range wcs[:m] {
							require.Equal(t, verbs.WCWRFlushErr, wc.Status)
						}
					}
					whole = at == len(b)-1
				})
				if t.Failed() {
					break
				}
			}
		})
	}
}

// TestHostileLength sends FPDUs with a wrong length.
func TestHostileLength(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	t.Run("too short for a header", func(t *testing.T) {
		for size := range ddp.UntaggedLen {
			for _, first := range []byte{0x41, 0xc1} {
				if size >= ddp.TaggedLen && first == 0xc1 {
					continue
				}
				v := newFaultEnv(n.as(t), rawOpts{})
				u := make([]byte, size)
				if size > 1 {
					u[0], u[1] = first, 0x43
				}
				v.p.send(u)
				v.p.terminate(2, 0, 3, quoteNone, nil)
				v.p.close()
				v.ended(terminated(2, 0, 3, false))
			}
		}
	})
	t.Run("more than there is", func(t *testing.T) {
		for _, more := range []int{1, 4, 100, 60000} {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(8)
			b := rawFPDU(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), true)
			binary.BigEndian.PutUint16(b, uint16(14+8+more))
			v.p.write(b)
			v.p.shut()
			v.p.eof()
			v.p.close()
			v.ended(io.ErrUnexpectedEOF)
			require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
			v.intact()
		}
	})
	t.Run("less than there is", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		b := rawFPDU(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), true)
		binary.BigEndian.PutUint16(b, 14+4)
		v.p.write(b)
		v.p.terminate(2, 0, 2, quoteNone, nil)
		v.p.close()
		v.ended(terminated(2, 0, 2, false))
		v.intact()
	})
	t.Run("the largest", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		big := v.mr(1<<16, 0, rawAccess)
		body := pattern(mpa.MaxULPDU-ddp.TaggedLen, 9)
		v.p.send(rawTagged(rdmap.OpWrite, big.RKey(), 1, body))
		v.fence(1)
		require.Equal(t, body, big.Bytes()[1:1+len(body)])
		require.Equal(t, []byte{0xa5, 0xa5}, []byte{big.Bytes()[0], big.Bytes()[len(body)+1]})
		buf := v.recv(mpa.MaxULPDU - ddp.UntaggedLen)[0]
		body = pattern(mpa.MaxULPDU-ddp.UntaggedLen, 10)
		v.p.send(rawSend(1, body))
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: uint32(len(body)), QPNum: v.qp.Num()},
			v.received())
		require.Equal(t, body, buf)
	})
	t.Run("the smallest segments", func(t *testing.T) {
		// A message with one byte per segment, and with empty segments.
		v := newFaultEnv(n.as(t), rawOpts{})
		buf := v.recv(300)[0]
		body := pattern(300, 11)
		var msgs [][]byte
		for i := range body {
			msgs = append(msgs, rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1, MO: uint32(i)}, nil),
				rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1, MO: uint32(i), Last: i == len(body)-1}, body[i:i+1]))
		}
		v.p.send(msgs...)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 300, QPNum: v.qp.Num()}, v.received())
		require.Equal(t, body, buf)
		sink := v.mr(300, 0x8000, verbs.AccessLocalWrite)
		v.post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{v.sge(sink)}})
		v.p.read()
		msgs = msgs[:0]
		for i := range body {
			msgs = append(msgs, rawTaggedSegment(rdmap.OpReadResponse,
				ddp.Tagged{STag: sink.LKey(), TO: 0x8000 + uint64(i)}, nil),
				rawTaggedSegment(rdmap.OpReadResponse, ddp.Tagged{STag: sink.LKey(), TO: 0x8000 + uint64(i),
					Last: i == len(body)-1}, body[i:i+1]))
		}
		v.p.send(msgs...)
		require.Equal(t, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 300, QPNum: v.qp.Num()}, v.sent())
		require.Equal(t, body, sink.Bytes())
	})
}

// TestHostileGarbage sends bytes that follow no protocol, and FPDUs with random contents.
func TestHostileGarbage(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	_, other := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("bytes, seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(64)
			b := make([]byte, 70000)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			// The NIC may close before it has read everything.
			require.NoError(t, v.p.conn.SetDeadline(time.Now().Add(rawWait)))
			_, _ = v.p.conn.Write(b)
			_, _ = io.Copy(io.Discard, v.p.conn)
			v.p.close()
			v.ended(terminated(2, 0, 2, false))
			require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
			v.intact()
		})
	}
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("FPDUs, seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(64)
			v.reads(8)
			v.atomics(1)
			for range 100 {
				// Mostly valid where an error is likely to be detected.
				u := make([]byte, 14+r.IntN(80))
				for i := range u {
					u[i] = byte(r.Uint32()) & byte(r.Uint32()) & byte(r.Uint32())
				}
				u[0] = u[0]&^3 | 1
				u[1] = u[1]&^0xc0 | 0x40
				if len(u) >= 18 && u[0]&0x80 == 0 {
					binary.BigEndian.PutUint32(u[6:], uint32(r.IntN(5)))
					binary.BigEndian.PutUint32(u[10:], uint32(r.IntN(2)+1))
					if r.IntN(4) > 0 {
						binary.BigEndian.PutUint32(u[14:], 0)
					}
				}
				require.NoError(t, v.p.conn.SetWriteDeadline(time.Now().Add(rawWait)))
				if _, err := v.p.conn.Write(rawFPDU(u, true)); err != nil {
					break
				}
			}
			_ = v.p.conn.CloseWrite()
			require.NoError(t, v.p.conn.SetReadDeadline(time.Now().Add(rawWait)))
			_, _ = io.Copy(io.Discard, v.p.conn)
			v.p.close()
			select {
			case <-v.id.Done():
			case <-soon(t).Done():
				require.FailNow(t, "the connection has not ended")
			}
			require.Equal(t, verbs.QPStateErr, v.qp.State())
			require.Error(t, v.qp.Err())
			for _, mr := range []*verbs.MR{v.all, v.local, v.read, v.write, v.foreign} { // the keys cannot be guessed
				untouched(t, mr)
			}
		})
		if seed%50 == 0 {
			other.alive(alive)
		}
	}
}

// TestHostileInterleaved interleaves the segments of messages.
func TestHostileInterleaved(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	t.Run("Send inside of a Write", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		buf := v.recv(8)[0]
		v.p.send(rawTaggedSegment(rdmap.OpWrite, ddp.Tagged{STag: v.all.RKey(), TO: v.all.Addr()}, eight[:4]),
			rawSend(1, eight),
			rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr()+4, eight[4:]))
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 8, QPNum: v.qp.Num()}, v.received())
		v.fence(1)
		require.Equal(t, eight, buf)
		require.Equal(t, eight, v.all.Bytes()[:8])
	})
	t.Run("Write and Read inside of a Send", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		buf := v.recv(8)[0]
		v.p.send(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]),
			rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight))
		v.fence(1)
		v.idle(v.rcq)
		v.p.send(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1, MO: 4, Last: true}, eight[4:]))
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 8, QPNum: v.qp.Num()}, v.received())
		require.Equal(t, eight, buf)
		require.Equal(t, eight, v.all.Bytes()[:8])
	})
	t.Run("Write inside of a Read Response", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.reads(8)
		v.p.send(rawTaggedSegment(rdmap.OpReadResponse, ddp.Tagged{STag: v.sink.LKey(), TO: v.sink.Addr()}, eight[:4]),
			rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight))
		v.fence(1)
		v.idle(v.scq)
		v.p.send(rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr()+4, eight[4:]))
		require.Equal(t, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 8, QPNum: v.qp.Num()}, v.sent())
		require.Equal(t, eight, v.sink.Bytes()[:8])
		require.Equal(t, eight, v.all.Bytes()[:8])
	})
	for name, second := range map[string][]byte{
		"Send":           rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 2}, eight[:4]),
		"Immediate Data": rawImm(2, 7),
	} {
		t.Run(name+" inside of a Send", func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(8, 8)
			v.p.send(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]), second)
			v.p.terminate(1, 2, 3, quoteDDP, second)
			v.p.close()
			v.ended(terminated(1, 2, 3, false))
			require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
			require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
		})
	}
	t.Run("Immediate Data as the rest of a Send", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.recv(8, 8)
		fault := rawImm(1, 7)
		v.p.send(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]), fault)
		v.p.terminate(1, 2, 4, quoteDDP, fault)
	})
}

// TestHostileAnswers answers requests twice, and also a Read whose memory is gone.
func TestHostileAnswers(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	t.Run("Read Response twice", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.reads(8)
		good, again := rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr(), eight),
			rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr(), make([]byte, 8))
		v.p.send(good, again)
		v.p.terminate(1, 1, 0, quoteDDP, again)
		require.Equal(t, verbs.WCSuccess, v.sent().Status)
		require.Equal(t, eight, v.sink.Bytes()[:8])
	})
	t.Run("Atomic Response twice", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.atomics(1)
		again := rawAtomicResponse(2, v.ids[0], 1)
		v.p.send(rawAtomicResponse(1, v.ids[0], 7), again)
		v.p.terminate(1, 2, 2, quoteDDP, again)
		require.Equal(t, verbs.WCSuccess, v.sent().Status)
		require.EqualValues(t, 7, word64(v.sink.Bytes()))
	})
	t.Run("Read into memory that is gone", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		mem := bytes.Repeat([]byte{0xa5}, 8)
		mr, err := v.pd.RegMR(mem, verbs.AccessLocalWrite)
		require.NoError(t, err)
		v.post(verbs.SendWR{ID: 9, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{v.sge(mr)}})
		v.p.read()
		fault := rawTagged(rdmap.OpReadResponse, mr.LKey(), mr.Addr(), eight)
		within(t, rawWait, "MR.Close", func() { require.NoError(t, mr.Close()) })
		v.p.send(fault)
		v.p.terminate(1, 1, 0, quoteDDP, fault)
		v.p.close()
		require.Equal(t, verbs.WC{ID: 9, Status: verbs.WCLocProtErr, QPNum: v.qp.Num()}, v.sent())
		require.Equal(t, bytes.Repeat([]byte{0xa5}, 8), mem)
	})
	t.Run("memory is withdrawn while it is being read", func(t *testing.T) {
		// The quoted Read Request is advanced by the bytes already answered (RFC 5040 section 4.8).
		v := newFaultEnv(n.as(t), rawOpts{})
		const size = 16 << 20
		mr, err := v.pd.AllocMR(size, verbs.AccessRemoteRead)
		require.NoError(t, err)
		v.p.send(rawRead(1, rdmap.ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: size, SrcSTag: mr.RKey(),
			SrcTO: mr.Addr()}))
		got := len(v.p.read()) - ddp.TaggedLen
		within(t, rawWait, "MR.Close", func() { require.NoError(t, mr.Close()) })
		for {
			u := v.p.read()
			if ddp.IsTagged(u[0]) {
				h, err := ddp.ParseTagged(u)
				require.NoError(t, err)
				require.EqualValues(t, 0x100+got, h.TO)
				require.False(t, h.Last, "the response must not be complete")
				got += len(u) - ddp.TaggedLen
				continue
			}
			rest := rawRead(1, rdmap.ReadRequest{SinkSTag: 7, SinkTO: 0x100 + uint64(got), Size: uint32(size - got),
				SrcSTag: mr.RKey(), SrcTO: mr.Addr() + uint64(got)})
			v.p.wantTerminate(u, 0, 1, 0, quoteRead, rest)
			break
		}
		v.p.eof()
		v.p.close()
		v.ended(terminated(0, 1, 0, false))
	})
}

// TestHostileAfterFault sends valid messages after an invalid one: they have no effect.
func TestHostileAfterFault(t *testing.T) {
	v := newFaultEnv(newRawNIC(t, usiw.Config{}), rawOpts{})
	v.recv(8, 8)
	bad := rawTagged(rdmap.OpWrite, v.all.RKey()^1, v.all.Addr(), eight)
	v.p.send(bad, rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), rawSend(1, eight),
		rawAtomic(1, add(v.all, 0)), rawRead(2, fetch(v.all, 0, 8)))
	v.p.terminate(1, 1, 0, quoteDDP, bad)
	v.p.close()
	v.ended(terminated(1, 1, 0, false))
	require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
	require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
	v.intact()
}
