// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// table reads a file of testdata: lines of words, with comments after #.
func table(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		text, _, _ := strings.Cut(s.Text(), "#")
		if words := strings.Fields(text); len(words) > 0 {
			rows = append(rows, words)
		}
	}
	require.NoError(t, s.Err())
	require.NotEmpty(t, rows)
	return rows
}

// vector returns the bytes of a vector. If an FPDU has a CRC, it is checked.
func vector(t *testing.T, name string) []byte {
	t.Helper()
	for _, row := range table(t, "fpdu.txt") {
		if row[0] != name {
			continue
		}
		b, err := hex.DecodeString(row[1])
		require.NoError(t, err)
		if !strings.HasPrefix(name, "mpa-") && !strings.HasSuffix(name, "-nocrc") {
			require.True(t, mpa.CheckMarked(b), "CRC of vector %s", name)
		}
		return b
	}
	require.Fail(t, "no vector", name)
	return nil
}

// patch replaces 32 bits of an FPDU that vary between runs, such as a key or a request identifier,
// and updates its CRC.
func patch(fpdu []byte, off int, v uint32) []byte {
	binary.BigEndian.PutUint32(fpdu[off:], v)
	n := len(fpdu) - mpa.CRCLen
	mpa.PutCRC(fpdu[n:], mpa.CRC(0, fpdu[:n]))
	return fpdu
}

// Offsets in an FPDU of the fields that are patched.
const (
	atTaggedSTag  = 2 + 2       // of a Write
	atSinkSTag    = 2 + 18      // of a Read Request
	atSourceSTag  = 2 + 18 + 16 //
	atAtomicID    = 2 + 18 + 4  // of an Atomic Request
	atAtomicSTag  = 2 + 18 + 8  //
	atResponseID  = 2 + 18      // of an Atomic Response
	atRequestedID = 18 + 4      // of the Atomic Request's ULPDU
)

// fours are the depths of the vectors' startup frames.
var fours = cm.ConnParam{InitiatorDepth: 4, ResponderResources: 4}

// TestVectorFrames compares the startup frames that the NIC sends, including its replies, to the
// vectors.
func TestVectorFrames(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		for name, rtr := range map[string]usiw.Policy{"mpa-request": usiw.Off, "mpa-request-rtr-write": usiw.On} {
			n := newRawNIC(t, usiw.Config{RTR: rtr, CRC: usiw.On})
			ln := rawListen(t)
			c := n.end(verbs.QPCap{}).goConnect(soon(t), ln, fours)
			p := rawAccept(t, ln)
			want := vector(t, name)
			require.Equal(t, want, p.bytes(len(want)), name)
			reply := vector(t, "mpa-reply")
			copy(reply[mpa.FrameLen:], want[mpa.FrameLen:]) // the same RTR and depths
			p.write(reply)
			p.crc = true
			if rtr == usiw.On {
				require.Equal(t, vector(t, "rtr-write"), p.readRaw())
			}
			r := result(t, "Connect", c)
			require.NoError(t, r.err)
			ord, ird := r.id.Depths()
			require.Equal(t, [2]int{4, 4}, [2]int{ord, ird})
		}
	})
	t.Run("reply", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e := n.end(verbs.QPCap{})
		ln := n.listen()
		p := rawDial(t, ln.Addr())
		p.write(vector(t, "mpa-request"))
		c := e.goAccept(soon(t), n.request(ln), fours)
		t.Cleanup(p.close)
		want := vector(t, "mpa-reply")
		require.Equal(t, want, p.bytes(len(want)))
		p.crc = true
		p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
		require.NoError(t, result(t, "Accept", c).err)
	})
	t.Run("reply to RTR by Read", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e := n.end(verbs.QPCap{})
		ln := n.listen()
		p := rawDial(t, ln.Addr())
		p.write(vector(t, "mpa-request-rtr-read"))
		e.goAccept(soon(t), n.request(ln), fours)
		t.Cleanup(p.close)
		f := p.frame()
		require.True(t, f.Enhanced.PeerToPeer, "A is copied")
		require.True(t, f.Enhanced.RTRWrite || f.Enhanced.RTRRead || f.Enhanced.RTRSend, "one kind at least")
	})
}

// TestVectorsSent compares the bytes that the NIC sends for the operation of each vector.
func TestVectorsSent(t *testing.T) {
	type env struct {
		*rawEnd
		p *rawPeer
	}
	cases := []struct {
		name string
		cfg  usiw.Config
		run  func(env)
	}{
		{"send", usiw.Config{}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{e.sge(e.data("hello"))}})
			require.Equal(e.t, vector(e.t, "send"), e.p.readRaw())
			e.post(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSolicited})
			require.Equal(e.t, vector(e.t, "send-se"), e.p.readRaw())
		}},
		{"send-nocrc", usiw.Config{CRC: usiw.Off}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{e.sge(e.data("hello"))}})
			require.Equal(e.t, vector(e.t, "send-nocrc"), e.p.readRaw())
		}},
		{"write", usiw.Config{}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite,
				SGL:  []verbs.SGE{e.sge(e.data("\x00\x01\x02\x03\x04\x05\x06\x07"))},
				RKey: 0x00abcd01, RemoteAddr: 0x1000})
			require.Equal(e.t, vector(e.t, "write"), e.p.readRaw())
		}},
		{"read", usiw.Config{}, func(e env) {
			sink := e.mr(32, 0x52000, verbs.AccessLocalWrite)
			e.post(verbs.SendWR{ID: 5, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{e.sge(sink)}, RKey: 0x53,
				RemoteAddr: 0x54000})
			require.Equal(e.t, patch(vector(e.t, "read"), atSinkSTag, sink.LKey()), e.p.readRaw())
			e.idle(e.scq)
			want := pattern(32, 1)
			e.p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x52000, want))
			require.Equal(e.t, verbs.WC{ID: 5, Opcode: verbs.WCRDMARead, ByteLen: 32, QPNum: e.qp.Num()}, e.sent())
			require.Equal(e.t, want, sink.Bytes())
		}},
		{"imm", usiw.Config{}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 0x1122334455667788},
				verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 0x1122334455667788, Flags: verbs.SendSolicited})
			require.Equal(e.t, vector(e.t, "imm"), e.p.readRaw())
			require.Equal(e.t, vector(e.t, "imm-se"), e.p.readRaw())
		}},
		{"write with immediate", usiw.Config{}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm,
				SGL:  []verbs.SGE{e.sge(e.data("\x00\x01\x02\x03\x04\x05\x06\x07"))},
				RKey: 0x00abcd01, RemoteAddr: 0x1000, Imm: 0x11223344},
				verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, RKey: 9, Imm: 0x11223344, Flags: verbs.SendSolicited})
			require.Equal(e.t, vector(e.t, "write"), e.p.readRaw())
			require.Equal(e.t, rawFPDU(rawImm(1, 0x1122334400000000), true), e.p.readRaw())
			u := e.p.read()
			require.Equal(e.t, rawTagged(rdmap.OpWrite, 0, 0, nil)[:2], u[:2],
				"the control bytes of a Write without data")
			require.Len(e.t, u, ddp.TaggedLen)
			require.Equal(e.t, rawUntagged(rdmap.OpImmediateSE, 0, 2,
				binary.BigEndian.AppendUint64(nil, 0x1122334400000000)), e.p.read())
		}},
		{"send with invalidate", usiw.Config{}, func(e env) {
			e.post(verbs.SendWR{Opcode: verbs.WRSendWithInv, SGL: []verbs.SGE{e.sge(e.data("hello"))},
				InvalidateRKey: 0x01020304},
				verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: 0x01020304, Flags: verbs.SendSolicited})
			require.Equal(e.t, rawSegment(rdmap.OpSendInv, ddp.Untagged{Last: true, InvSTag: 0x01020304, MSN: 1},
				[]byte("hello")), e.p.read())
			require.Equal(e.t, rawSegment(rdmap.OpSendSEInv, ddp.Untagged{Last: true, InvSTag: 0x01020304, MSN: 2},
				nil), e.p.read())
		}},
		{"atomics", usiw.Config{}, func(e env) {
			sink := e.mr(16, 0x100, verbs.AccessLocalWrite)
			s0, err := sink.SGE(0, 8)
			require.NoError(e.t, err)
			s1, err := sink.SGE(8, 8)
			require.NoError(e.t, err)
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRAtomicFetchAndAdd, SGL: []verbs.SGE{s0}, RKey: 0x00abcd00,
				RemoteAddr: 0x7f0000001000, Add: 5},
				verbs.SendWR{ID: 2, Opcode: verbs.WRAtomicCmpAndSwp, SGL: []verbs.SGE{s1}, RKey: 0x00abcd00,
					RemoteAddr: 0x7f0000001008,
					Swap:       9, Compare: 5})
			// The requester chooses the identifiers.
			add, swap := e.p.readRaw(), e.p.readRaw()
			addID, swapID := binary.BigEndian.Uint32(add[atAtomicID:]), binary.BigEndian.Uint32(swap[atAtomicID:])
			require.NotEqual(e.t, addID, swapID)
			require.Equal(e.t, patch(vector(e.t, "fetchadd"), atAtomicID, addID), add)
			require.Equal(e.t, patch(vector(e.t, "cmpswap"), atAtomicID, swapID), swap)
			e.p.write(patch(vector(e.t, "atomic-response"), atResponseID, addID))
			require.Equal(e.t, verbs.WC{ID: 1, Opcode: verbs.WCFetchAdd, ByteLen: 8, QPNum: e.qp.Num()}, e.sent())
			require.EqualValues(e.t, 41, binary.NativeEndian.Uint64(sink.Bytes()))
			e.idle(e.scq)
			e.p.send(rawAtomicResponse(2, swapID, 42))
			require.Equal(e.t, verbs.WC{ID: 2, Opcode: verbs.WCCompSwap, ByteLen: 8, QPNum: e.qp.Num()}, e.sent())
			require.EqualValues(e.t, 42, binary.NativeEndian.Uint64(sink.Bytes()[8:]))
		}},
		{"masked atomics", usiw.Config{}, func(e env) {
			sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
			e.post(verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, SGL: []verbs.SGE{e.sge(sink)}, RKey: 1,
				RemoteAddr: 2, Add: 3, AddMask: 4},
				verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, SGL: []verbs.SGE{e.sge(sink)}, RKey: 5,
					RemoteAddr: 6,
					Swap:       7, SwapMask: 8, Compare: 9, CompareMask: 10})
			add, swap := e.p.read(), e.p.read()
			require.Equal(e.t, rawAtomic(1, rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd,
				ID:   binary.BigEndian.Uint32(add[atRequestedID:]),
				STag: 1, TO: 2, AddSwap: 3, AddSwapMask: 4}), add)
			require.Equal(e.t, rawAtomic(2, rdmap.AtomicRequest{Op: rdmap.AtomicCmpSwap,
				ID:   binary.BigEndian.Uint32(swap[atRequestedID:]),
				STag: 5, TO: 6, AddSwap: 7, AddSwapMask: 8, Compare: 9, CompareMask: 10}), swap)
		}},
		{"one sequence for Reads and atomics", usiw.Config{}, func(e env) {
			sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
			s := []verbs.SGE{e.sge(sink)}
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead, SGL: s},
				verbs.SendWR{ID: 2, Opcode: verbs.WRAtomicFetchAndAdd, SGL: s},
				verbs.SendWR{ID: 3, Opcode: verbs.WRRDMARead, SGL: s},
				verbs.SendWR{ID: 4, Opcode: verbs.WRAtomicFetchAndAdd, SGL: s})
			var ids []uint32
			for msn := uint32(1); msn <= 4; msn++ {
				u := e.p.read()
				h, err := ddp.ParseUntagged(u)
				require.NoError(e.t, err)
				require.Equal(e.t, msn, h.MSN)
				require.EqualValues(e.t, ddp.QNReadRequest, h.QN)
				if msn%2 == 0 {
					ids = append(ids, binary.BigEndian.Uint32(u[atRequestedID:]))
				}
			}
			e.p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, make([]byte, 8)),
				rawAtomicResponse(1, ids[0], 7),
				rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, make([]byte, 8)), rawAtomicResponse(2, ids[1], 7))
			for id := uint64(1); id <= 4; id++ {
				wc := e.sent()
				require.Equal(e.t, verbs.WCSuccess, wc.Status)
				require.Equal(e.t, id, wc.ID)
			}
		}},
		{"atomic-response", usiw.Config{}, func(e env) {
			mr := e.words(0x7f0000001000, 41, 5)
			e.p.write(patch(vector(e.t, "fetchadd"), atAtomicSTag, mr.RKey()))
			require.Equal(e.t, vector(e.t, "atomic-response"), e.p.readRaw())
			require.EqualValues(e.t, 46, binary.NativeEndian.Uint64(mr.Bytes()))
			e.p.write(patch(vector(e.t, "cmpswap"), atAtomicSTag, mr.RKey()))
			require.Equal(e.t, rawAtomicResponse(2, 0x12, 5), e.p.read())
			require.EqualValues(e.t, 9, binary.NativeEndian.Uint64(mr.Bytes()[8:]))
		}},
		{"terminate-align", usiw.Config{}, func(e env) {
			mr := e.words(0x7f0000001000, 1, 2)
			add := rdmap.AtomicRequest{STag: mr.RKey(), TO: mr.Addr(), AddSwap: 1}
			e.p.send(rawAtomic(1, add), rawAtomic(2, add), rawAtomic(3, add))
			for msn := uint32(1); msn <= 3; msn++ {
				require.Equal(e.t, rawAtomicResponse(msn, 0, uint64(msn)), e.p.read())
			}
			add.TO += 4
			e.p.send(rawAtomic(4, add))
			require.Equal(e.t, vector(e.t, "terminate-align"), e.p.readRaw())
			e.p.eof()
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, active := range []bool{true, false} {
				frame := rawRequest()
				frame.CRC = c.cfg.CRC != usiw.Off
				e := env{}
				n := newRawNIC(t, c.cfg)
				if active {
					e.rawEnd, e.p = n.active(rawOpts{frame: &frame})
				} else {
					e.rawEnd, e.p = n.passive(rawOpts{frame: &frame})
				}
				c.run(e)
			}
		})
	}
}

// data registers a string.
func (e *rawEnd) data(s string) *verbs.MR {
	e.t.Helper()
	return e.region(e.pd, []byte(s), 0x9000, 0)
}

// words registers words that peers may access with every kind of operation.
func (n *rawNIC) words(iova uint64, v ...uint64) *verbs.MR {
	n.t.Helper()
	buf := make([]byte, 8*len(v))
	for i := range v {
		binary.NativeEndian.PutUint64(buf[8*i:], v[i])
	}
	return n.region(n.pd, buf, iova, rawAccess)
}

// TestVectorsReceived sends the bytes of the vectors to the NIC.
func TestVectorsReceived(t *testing.T) {
	both := func(t *testing.T, run func(t *testing.T, e *rawEnd, p *rawPeer)) {
		t.Run("active", func(t *testing.T) {
			e, p := newRawNIC(t, usiw.Config{}).active(rawOpts{})
			run(t, e, p)
		})
		t.Run("passive", func(t *testing.T) {
			e, p := newRawNIC(t, usiw.Config{}).passive(rawOpts{})
			run(t, e, p)
		})
	}
	t.Run("send", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			bufs := e.recv(8, 0)
			p.write(append(vector(t, "send"), vector(t, "send-se")...))
			require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 5, QPNum: e.qp.Num()}, e.received())
			require.Equal(t, []byte("hello\xa5\xa5\xa5"), bufs[0])
			require.Equal(t, verbs.WC{ID: 2, Opcode: verbs.WCRecv, QPNum: e.qp.Num()}, e.received())
		})
	})
	t.Run("send-nocrc", func(t *testing.T) {
		frame := rawRequest()
		frame.CRC = false
		e, p := newRawNIC(t, usiw.Config{CRC: usiw.Off}).passive(rawOpts{frame: &frame})
		bufs := e.recv(8)
		p.write(vector(t, "send-nocrc"))
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 5, QPNum: e.qp.Num()}, e.received())
		require.Equal(t, []byte("hello\xa5\xa5\xa5"), bufs[0])
	})
	t.Run("write", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			mr := e.mr(16, 0x1000, rawAccess)
			p.write(append(patch(vector(t, "write"), atTaggedSTag, mr.RKey()), vector(t, "rtr-write")...))
			p.send(rawRead(1, rdmap.ReadRequest{})) // a response shows that the Writes are done
			require.Len(t, p.read(), ddp.TaggedLen)
			require.Equal(t, append(pattern(8, 0), bytes.Repeat([]byte{0xa5}, 8)...), mr.Bytes())
		})
	})
	t.Run("read", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			want := pattern(32, 7)
			mr := e.region(e.pd, want, 0x54000, verbs.AccessRemoteRead)
			p.write(patch(vector(t, "read"), atSourceSTag, mr.RKey()))
			require.Equal(t, rawTagged(rdmap.OpReadResponse, 0x51, 0x52000, want), p.read())
			e.idle(e.scq)
			e.idle(e.rcq)
		})
	})
	t.Run("imm", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			bufs := e.recv(8, 8)
			p.write(append(vector(t, "imm"), vector(t, "imm-se")...))
			for id := uint64(1); id <= 2; id++ {
				require.Equal(t, verbs.WC{ID: id, Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm, ByteLen: 8,
					Imm64: 0x1122334455667788, Imm: 0x11223344, QPNum: e.qp.Num()}, e.received())
			}
			require.Equal(t, bytes.Repeat([]byte{0xa5}, 8), bufs[0], "the data are in the completion only")
		})
	})
	t.Run("terminate-opcode", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			e.recv(8)
			p.write(vector(t, "terminate-opcode"))
			p.eof()
			p.close()
			e.ended(terminated(0, 2, 6, true))
			require.Equal(t, verbs.WC{ID: 1, Status: verbs.WCWRFlushErr, QPNum: e.qp.Num()}, e.received())
		})
	})
	t.Run("terminate-align", func(t *testing.T) {
		both(t, func(t *testing.T, e *rawEnd, p *rawPeer) {
			s := []verbs.SGE{e.sge(e.words(0, 1))}
			for id := uint64(1); id <= 5; id++ {
				e.post(verbs.SendWR{ID: id, Opcode: verbs.WRAtomicFetchAndAdd, SGL: s})
				p.read()
			}
			p.write(vector(t, "terminate-align"))
			for id := uint64(1); id <= 5; id++ {
				want := verbs.WCWRFlushErr
				if id == 4 {
					want = verbs.WCRemInvReqErr
				}
				require.Equal(t, verbs.WC{ID: id, Status: want, QPNum: e.qp.Num()}, e.sent())
			}
			p.eof()
			p.close()
			e.ended(terminated(0, 2, 7, true))
			var te *verbs.TerminateError
			require.ErrorAs(t, e.qp.Err(), &te)
			require.Equal(t, vector(t, "fetchadd")[2:][:18], func() []byte { te.Header[13] = 1; return te.Header }(),
				"the quoted header, as MSN 1")
		})
	})
}

// TestVectorSolicited sends the solicited vectors to a CQ that is armed for solicited completions
// only.
func TestVectorSolicited(t *testing.T) {
	for _, c := range []struct{ plain, solicited string }{{"send", "send-se"}, {"imm", "imm-se"}} {
		t.Run(c.solicited, func(t *testing.T) {
			n := newRawNIC(t, usiw.Config{})
			ch, err := n.ctx.CreateCompChannel()
			require.NoError(t, err)
			rcq, err := n.ctx.CreateCQ(verbs.CQConfig{Channel: ch})
			require.NoError(t, err)
			e, p := n.passive(rawOpts{rcq: rcq, before: func(e *rawEnd) { e.recv(8, 8) }})
			require.NoError(t, rcq.ReqNotify(true))
			p.write(vector(t, c.plain))
			p.send(rawRead(1, rdmap.ReadRequest{}))
			p.read() // the plain one has been received
			short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			_, err = ch.Wait(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			p.write(vector(t, c.solicited))
			got, err := ch.Wait(soon(t))
			require.NoError(t, err)
			require.Same(t, rcq, got)
			var wcs [3]verbs.WC
			k, err := rcq.Poll(wcs[:])
			require.NoError(t, err)
			require.Equal(t, 2, k)
			e.idle(e.scq)
		})
	}
}

// TestVectorsOfAtomics performs masked atomics for a raw peer: the response carries the original
// value, memory holds the result.
func TestVectorsOfAtomics(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	e, p := n.passive(rawOpts{})
	mr := e.words(0x40, 0, 0, 0)
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(mr.Bytes()[8*i:]) }
	msn := uint32(0)
	for _, row := range table(t, "atomics.txt") {
		var v []uint64
		for _, s := range row[1:] {
			x, err := strconv.ParseUint(s, 16, 64)
			require.NoError(t, err)
			v = append(v, x)
		}
		msn++
		for i, w := range []uint64{^uint64(0), v[0], ^uint64(0)} {
			binary.NativeEndian.PutUint64(mr.Bytes()[8*i:], w)
		}
		r := rdmap.AtomicRequest{ID: 0xc0de + msn, STag: mr.RKey(), TO: mr.Addr() + 8}
		if row[0][0] == 'F' {
			require.Len(t, v, 4)
			r.Op, r.AddSwap, r.AddSwapMask = rdmap.AtomicFetchAdd, v[1], v[2]
		} else {
			require.Len(t, v, 6)
			r.Op, r.Compare, r.CompareMask, r.AddSwap, r.AddSwapMask = rdmap.AtomicCmpSwap, v[1], v[2], v[3], v[4]
		}
		u := rawAtomic(msn, r)
		u[18], u[19], u[20], u[21] = 0xff, 0xff, 0xff, u[21]|0xf0 // reserved bits do not matter
		binary.BigEndian.PutUint32(u[2:], 0xffffffff)             // nor does the Invalidate STag field
		if r.Op == rdmap.AtomicFetchAdd {
			binary.BigEndian.PutUint64(u[54:], 0x1234) // nor the compare data of a FetchAdd
			binary.BigEndian.PutUint64(u[62:], 0x5678)
		}
		p.send(u)
		require.Equal(t, rawAtomicResponse(msn, r.ID, v[0]), p.read(), row[0])
		require.Equal(t, fmt.Sprintf("%016x", v[len(v)-1]), fmt.Sprintf("%016x", word(1)), row[0])
		require.Equal(t, [2]uint64{^uint64(0), ^uint64(0)}, [2]uint64{word(0), word(2)}, "the neighbours of %s", row[0])
	}
	// The operation applies to the native number in memory; the wire carries it most significant
	// byte first.
	copy(mr.Bytes()[8:], []byte{8, 7, 6, 5, 4, 3, 2, 1})
	msn++
	p.send(rawAtomic(msn, rdmap.AtomicRequest{STag: mr.RKey(), TO: mr.Addr() + 8}))
	require.Equal(t, rawAtomicResponse(msn, 0, word(1)), p.read())
}

// TestSegments checks how messages are divided into segments: every one but the last is full and
// splits no 8-byte word, offsets are contiguous, and only the last carries L.
func TestSegments(t *testing.T) {
	const mtu = 512
	most := mpa.MULPDU(mtu, false)
	payload := func(left, header int) int {
		if full := most - header; left > full {
			return full &^ 7
		}
		return left
	}
	n := newRawNIC(t, usiw.Config{MTU: mtu})
	e, p := n.passive(rawOpts{cap: verbs.QPCap{MaxSendSGE: 4}})
	for _, size := range []int{1, most - ddp.UntaggedLen, most - ddp.UntaggedLen + 1, most - ddp.TaggedLen,
		most - ddp.TaggedLen + 1, 2048, 10000} {
		want := pattern(size, byte(size))
		mr := e.region(e.pd, want, 0x2000, rawAccess)
		s := e.sge(mr)
		sgl := []verbs.SGE{s}
		if size > 3 { // several elements, an empty one among them
			sgl = []verbs.SGE{{Addr: s.Addr, Length: 3, LKey: s.LKey}, {Addr: s.Addr, LKey: s.LKey},
				{Addr: s.Addr + 3, Length: s.Length - 3, LKey: s.LKey}}
		}
		e.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: sgl})
		msn := uint32(0)
		for got := 0; ; {
			u := p.read()
			h, err := ddp.ParseUntagged(u)
			require.NoError(t, err)
			if msn == 0 {
				msn = h.MSN
			}
			body := u[ddp.UntaggedLen:]
			require.Equal(t, ddp.Untagged{Last: got+len(body) == size, ULP: rdmap.Control(rdmap.OpSend), MSN: msn,
				MO: uint32(got)}, h)
			require.Equal(t, payload(size-got, ddp.UntaggedLen), len(body))
			require.Equal(t, want[got:got+len(body)], body)
			if got += len(body); h.Last {
				break
			}
		}
		e.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sgl, RKey: 5, RemoteAddr: 0x10000})
		p.send(rawRead(msn, rdmap.ReadRequest{SinkSTag: 6, SinkTO: 0xfffffffffffffffe, Size: uint32(size),
			SrcSTag: mr.RKey(), SrcTO: mr.Addr()}))
		// the Write and the Read Response may arrive in either order, but not interleaved
		done := map[rdmap.Opcode]int{}
		for done[rdmap.OpWrite] < size || done[rdmap.OpReadResponse] < size {
			u := p.read()
			h, err := ddp.ParseTagged(u)
			require.NoError(t, err)
			_, op := rdmap.ParseControl(h.ULP)
			body, got := u[ddp.TaggedLen:], done[op]
			stag, to := uint32(5), uint64(0x10000)
			if op == rdmap.OpReadResponse {
				stag, to = 6, 0xfffffffffffffffe
			}
			require.Equal(t, ddp.Tagged{Last: got+len(body) == size, ULP: rdmap.Control(op), STag: stag,
				TO: to + uint64(got)}, h)
			require.Equal(t, payload(size-got, ddp.TaggedLen), len(body))
			require.Equal(t, want[got:got+len(body)], body)
			for other, k := range done {
				require.True(t, other == op || k == 0 || k == size, "%v inside of %v", op, other)
			}
			done[op] += len(body)
		}
	}
}

// TestFence checks the messages on the wire while a Read is unanswered: other requests overtake it,
// fenced ones do not, and all complete in posting order.
func TestFence(t *testing.T) {
	e, p := newRawNIC(t, usiw.Config{}).active(rawOpts{})
	sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
	sgl := []verbs.SGE{e.sge(sink)}
	e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead, SGL: sgl, RKey: 1}, verbs.SendWR{ID: 2, Opcode: verbs.WRSend},
		verbs.SendWR{ID: 3, Opcode: verbs.WRAtomicFetchAndAdd, SGL: sgl, RKey: 1},
		verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendFence},
		verbs.SendWR{ID: 5, Opcode: verbs.WRSend})
	require.Equal(t, rawRead(1, rdmap.ReadRequest{SinkSTag: sink.LKey(), SinkTO: 0x100, Size: 8, SrcSTag: 1}), p.read())
	require.Equal(t, rawSend(1, nil), p.read())
	r, err := rdmap.ParseAtomicRequest(p.read()[ddp.UntaggedLen:])
	require.NoError(t, err)
	p.none(10 * time.Millisecond)
	e.idle(e.scq)
	p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, make([]byte, 8)))
	for id := uint64(1); id <= 2; id++ {
		require.Equal(t, id, e.sent().ID)
	}
	p.none(10 * time.Millisecond)
	e.idle(e.scq)
	p.send(rawAtomicResponse(1, r.ID, 5))
	require.Equal(t, rawSend(2, nil), p.read())
	require.Equal(t, rawSend(3, nil), p.read())
	for id := uint64(3); id <= 5; id++ {
		wc := e.sent()
		require.Equal(t, id, wc.ID)
		require.Equal(t, verbs.WCSuccess, wc.Status)
	}
}

// TestImmediateAfter sends Immediate Data after other messages: directly after a Write, it
// completes the Write.
func TestImmediateAfter(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, c := range []struct {
		name   string
		before func(mr *verbs.MR) [][]byte
		want   verbs.WC // of the immediate
		recvs  int      // completions before it
	}{
		{"nothing", func(*verbs.MR) [][]byte { return nil }, verbs.WC{Opcode: verbs.WCRecvImmData, ByteLen: 8}, 0},
		{"a Write", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0,
				make([]byte, 5))}
		},
			verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 5}, 0},
		{"an empty Write", func(*verbs.MR) [][]byte { return [][]byte{rawTagged(rdmap.OpWrite, 7, 7, nil)} },
			verbs.WC{Opcode: verbs.WCRecvRDMAWithImm}, 0},
		{"a Write in segments", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTaggedSegment(rdmap.OpWrite, ddp.Tagged{STag: mr.RKey()}, make([]byte, 5)),
				rawTaggedSegment(rdmap.OpWrite, ddp.Tagged{STag: mr.RKey(), TO: 5}, make([]byte, 6)),
				rawTagged(rdmap.OpWrite, mr.RKey(), 11, make([]byte, 7))}
		}, verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 18}, 0},
		{"two Writes", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 5)),
				rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 9))}
		}, verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 9}, 0},
		{"a Write and a Send", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 5)), rawSend(1, nil)}
		}, verbs.WC{Opcode: verbs.WCRecvImmData, ByteLen: 8}, 1},
		{"a Write and an immediate", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 5)), rawImm(1, 1)}
		}, verbs.WC{Opcode: verbs.WCRecvImmData, ByteLen: 8}, 1},
		{"a Write and a Read Request", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 5)), rawRead(1, rdmap.ReadRequest{})}
		}, verbs.WC{Opcode: verbs.WCRecvImmData, ByteLen: 8}, 0},
		{"a Write and an Atomic Request", func(mr *verbs.MR) [][]byte {
			return [][]byte{rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 5)), rawAtomic(1, add(mr, 0))}
		}, verbs.WC{Opcode: verbs.WCRecvImmData, ByteLen: 8}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, p := n.as(t).passive(rawOpts{})
			e.recv(0, 0)
			msgs := append(c.before(e.mr(64, 0, rawAccess)), rawImm(uint32(c.recvs)+1, 0xfedcba9876543210))
			p.send(msgs...)
			for range c.recvs {
				require.Equal(t, verbs.WCSuccess, e.received().Status)
			}
			want := c.want
			want.ID, want.Flags, want.Imm64, want.Imm, want.QPNum = uint64(c.recvs)+1, verbs.WCWithImm,
				0xfedcba9876543210, 0xfedcba98, e.qp.Num()
			require.Equal(t, want, e.received())
		})
	}
}
