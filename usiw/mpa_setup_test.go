// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Flags of a startup frame (RFC 5044 section 7.1.1, RFC 6581 section 6).
const (
	flagM = 0x80
	flagC = 0x40
	flagR = 0x20
	flagS = 0x10
)

// startup returns the bytes of a startup frame without validating them.
func startup(reply bool, flags, rev byte, pd ...byte) []byte {
	key := "MPA ID Req Frame"
	if reply {
		key = "MPA ID Rep Frame"
	}
	return append(append([]byte(key), flags, rev, byte(len(pd)>>8), byte(len(pd))), pd...)
}

// word returns the enhanced word of a startup frame (RFC 6581 section 9).
func word(a, b bool, ird uint16, c, d bool, ord uint16) []byte {
	if a {
		ird |= 0x8000
	}
	if b {
		ird |= 0x4000
	}
	if c {
		ord |= 0x8000
	}
	if d {
		ord |= 0x4000
	}
	return []byte{byte(ird >> 8), byte(ird), byte(ord >> 8), byte(ord)}
}

// plain returns the enhanced word of the client-server model.
func plain(ird, ord uint16) []byte { return word(false, false, ird, false, false, ord) }

// depth returns a ConnParam.
func depth(ird, ord int) cm.ConnParam {
	return cm.ConnParam{ResponderResources: ird, InitiatorDepth: ord}
}

// TestSetupReply checks every byte of the Reply to accepted Requests, and the agreed parameters.
func TestSetupReply(t *testing.T) {
	t.Parallel()
	request := func(flags, rev byte, pd ...byte) []byte { return startup(false, flags, rev, pd...) }
	reply := func(flags, rev byte, pd ...byte) []byte { return startup(true, flags, rev, pd...) }
	cases := []struct {
		name     string
		crc      usiw.Policy // of the NIC
		param    cm.ConnParam
		request  []byte
		reply    []byte
		has      bool // whether there is a CRC
		ird, ord int
	}{
		{"revision 1", usiw.Default, depth(4, 4), request(flagC, 1), reply(flagC, 1), true, 4, 4},
		{"revision 1 with private data", usiw.Default, depth(4, 4), request(flagC, 1, 1, 2, 3), reply(flagC, 1), true,
			4, 4}, {"revision 1 with the bit S, which it does not know", usiw.Default, depth(4, 4),
			request(flagC|flagS, 1, plain(2, 2)...), reply(flagC, 1), true, 4, 4},
		{"revision 2 without the enhanced word", usiw.Default, depth(4, 4), request(flagC, 2), reply(flagC, 2), true, 4,
			4},
		{"revision 2", usiw.Default, depth(4, 4), request(flagC|flagS, 2, plain(4, 4)...),
			reply(flagC|flagS, 2, plain(4, 4)...), true, 4, 4},
		{"reserved bits and R do not matter", usiw.Default, depth(4, 4),
			request(flagC|flagS|flagR|0x0f, 2, plain(4, 4)...),
			reply(flagC|flagS, 2, plain(4, 4)...), true, 4, 4},
		{"enhanced word and private data", usiw.Default, depth(4, 4),
			request(flagC|flagS, 2, append(plain(4, 4), 9, 8)...),
			reply(flagC|flagS, 2, plain(4, 4)...), true, 4, 4},

		{"CRC asked for here", usiw.On, depth(4, 4), request(0, 1), reply(flagC, 1), true, 4, 4},
		{"CRC asked for there", usiw.Off, depth(4, 4), request(flagC, 1), reply(flagC, 1), true, 4, 4},
		{"CRC asked for nowhere", usiw.Off, depth(4, 4), request(0, 1), reply(0, 1), false, 4, 4},
		{"CRC asked for here, revision 2", usiw.On, depth(4, 4), request(flagS, 2, plain(4, 4)...),
			reply(flagC|flagS, 2, plain(4, 4)...), true, 4, 4},
		{"CRC asked for nowhere, revision 2", usiw.Off, depth(4, 4), request(flagS, 2, plain(4, 4)...),
			reply(flagS, 2, plain(4, 4)...), false, 4, 4},

		// Our ORD is at most the peer's IRD. Our IRD need not be larger than the peer's ORD.
		{"the peer serves less", usiw.Default, depth(16, 16), request(flagC|flagS, 2, plain(3, 16)...),
			reply(flagC|flagS, 2, plain(16, 3)...), true, 16, 3},
		{"the peer serves more", usiw.Default, depth(16, 16), request(flagC|flagS, 2, plain(100, 16)...),
			reply(flagC|flagS, 2, plain(16, 16)...), true, 16, 16},
		{"the peer asks for more than we serve", usiw.Default, depth(5, 16), request(flagC|flagS, 2, plain(16, 100)...),
			reply(flagC|flagS, 2, plain(4, 16)...), true, 4, 16},
		{"the peer asks for what is no power of two", usiw.Default, depth(16, 16),
			request(flagC|flagS, 2, plain(16, 5)...),
			reply(flagC|flagS, 2, plain(8, 16)...), true, 5, 16},
		{"the peer asks for less than we serve", usiw.Default, depth(5, 16), request(flagC|flagS, 2, plain(16, 1)...),
			reply(flagC|flagS, 2, plain(1, 16)...), true, 1, 16},
		{"no Reads", usiw.Default, depth(cm.None, cm.None), request(flagC|flagS, 2, plain(16, 16)...),
			reply(flagC|flagS, 2, plain(0, 0)...), true, 0, 0},
		{"the peer has none", usiw.Default, depth(16, 16), request(flagC|flagS, 2, plain(0, 0)...),
			reply(flagC|flagS, 2, plain(0, 0)...), true, 0, 0},
		{"all of the device", usiw.Default, depth(0, 0), request(flagC|flagS, 2, plain(0x3ffe, 0x3ffe)...),
			reply(flagC|flagS, 2, plain(128, 128)...), true, 128, 128},
		{"not negotiated", usiw.Default, depth(5, 6), request(flagC|flagS, 2, plain(0x3fff, 0x3fff)...),
			reply(flagC|flagS, 2, plain(0x3fff, 0x3fff)...), true, 5, 6},
		{"ORD not negotiated", usiw.Default, depth(5, 6), request(flagC|flagS, 2, plain(4, 0x3fff)...),
			reply(flagC|flagS, 2, plain(0x3fff, 4)...), true, 5, 4},
		{"IRD not negotiated", usiw.Default, depth(5, 6), request(flagC|flagS, 2, plain(0x3fff, 4)...),
			reply(flagC|flagS, 2, plain(4, 0x3fff)...), true, 4, 6},

		// Without A, the other bits of RFC 6581 section 9.2 have no meaning.
		{"B, C and D without A", usiw.Default, depth(4, 4),
			request(flagC|flagS, 2, word(false, true, 4, true, true, 4)...),
			reply(flagC|flagS, 2, plain(4, 4)...), true, 4, 4},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newRawNIC(t, usiw.Config{CRC: c.crc, HoldTimeout: time.Hour})
			e, ln := n.end(verbs.QPCap{}), n.listen()
			p := rawDial(t, ln.Addr())
			p.write(c.request)
			acc := e.goAccept(soon(t), n.request(ln), c.param)
			t.Cleanup(p.close)
			require.Equal(t, c.reply, p.bytes(len(c.reply)))
			// Without RTR the Reply establishes the connection, but the responder sends nothing
			// until it has received something.
			r := result(t, "Accept", acc)
			require.NoError(t, r.err)
			ord, ird := r.id.Depths()
			require.Equal(t, [2]int{c.ird, c.ord}, [2]int{ird, ord})
			want := [2]int{-1, -1} // not announced by revision 1
			if c.request[16]&flagS != 0 && c.request[17] == 2 {
				want = [2]int{int(binary.BigEndian.Uint16(c.request[20:])) & 0x3fff,
					int(binary.BigEndian.Uint16(c.request[22:])) & 0x3fff}
			}
			ord, ird = r.id.PeerDepths()
			require.Equal(t, want, [2]int{ird, ord})
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
			p.none(20 * time.Millisecond)
			e.idle(e.scq)
			p.crc = c.has
			p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
			require.Equal(t, rawSend(1, nil), p.read())
			require.Equal(t, verbs.WC{ID: 1, QPNum: e.qp.Num()}, e.sent())
			// The CRC field is checked if and only if CRCs are on.
			e.recv(8)
			b := rawFPDU(rawSend(1, nil), c.has)
			b[len(b)-1] ^= 1
			p.write(b)
			if c.has {
				p.terminate(2, 0, 2, quoteNone, nil)
			} else {
				require.Equal(t, verbs.WCSuccess, e.received().Status)
			}
		})
	}
}

// TestSetupCRC asks every kind of peer for CRC, from either side and with every policy.
func TestSetupCRC(t *testing.T) {
	t.Parallel()
	p2p := word(true, false, 4, true, false, 4)
	none := map[usiw.Policy]bool{usiw.On: true}
	for _, kind := range []struct {
		name string
		cfg  usiw.Config // config of a NIC that sends such a Request
		rev  byte
		pd   []byte               // private data of the Request
		asks map[usiw.Policy]bool // whether the passive side asks
	}{
		{"revision 1", usiw.Config{Rev: 1}, 1, nil, none},
		{"as Linux's siw", usiw.Config{RTR: usiw.Off}, 2, plain(4, 4), none},
		{"peer-to-peer", usiw.Config{}, 2, p2p,
			map[usiw.Policy]bool{usiw.Default: true, usiw.On: true, usiw.Auto: true}},
	} {
		flags := byte(0)
		if kind.pd != nil {
			flags = flagS
		}
		for _, policy := range []usiw.Policy{usiw.Default, usiw.On, usiw.Off, usiw.Auto} {
			kind.cfg.CRC = policy
			t.Run(fmt.Sprintf("%s/%v", kind.name, policy), func(t *testing.T) {
				n := newRawNIC(t, kind.cfg)
				e, ln := n.end(verbs.QPCap{}), rawListen(t)
				e.goConnect(soon(t), ln, depth(4, 4))
				p := rawAccept(t, ln)
				want := startup(false, flags, kind.rev, kind.pd...)
				if policy == usiw.On {
					want[16] |= flagC
				}
				require.Equal(t, want, p.bytes(len(want)), "as active side")
				p.close()
				passive := n.listen()
				for _, theirs := range []byte{0, flagC} {
					p := rawDial(t, passive.Addr())
					p.write(startup(false, flags|theirs, kind.rev, kind.pd...))
					n.end(verbs.QPCap{}).goAccept(soon(t), n.request(passive), depth(4, 4))
					t.Cleanup(p.close)
					want := startup(true, flags|theirs, kind.rev, kind.pd...)
					if kind.asks[policy] {
						want[16] |= flagC
					}
					require.Equal(t, want, p.bytes(len(want)), "as passive side of a Request with flags %#x", theirs)
				}
			})
		}
	}
}

// An rtrKind is a message without data that can open a peer-to-peer connection (RFC 6581
// section 5).
type rtrKind struct {
	name  string
	kind  usiw.RTRMessages
	ulpdu []byte
}

var rtrKinds = []rtrKind{
	{"Write", usiw.RTRWrite, rawTagged(rdmap.OpWrite, 1, 0, nil)},
	{"Read", usiw.RTRRead, rawRead(1, rdmap.ReadRequest{SinkSTag: 1, SrcSTag: 1})},
	{"Send", usiw.RTRSend, rawSend(1, nil)},
}

// rtrWord returns the enhanced word of the peer-to-peer model with a set of messages.
func rtrWord(m usiw.RTRMessages, ird, ord uint16) []byte {
	return word(true, m&usiw.RTRSend != 0, ird, m&usiw.RTRWrite != 0, m&usiw.RTRRead != 0, ord)
}

// TestSetupRTR answers offers of RTR messages as the responder. The Reply copies A, and names the
// messages that both sides support, or all that this side supports if there are none in common. The
// connection is established, and our Sends are sent, once the first FPDU has arrived.
func TestSetupRTR(t *testing.T) {
	t.Parallel()
	const all = usiw.RTRWrite | usiw.RTRRead | usiw.RTRSend
	for _, c := range []struct {
		name                  string
		ours, offered, answer usiw.RTRMessages
		param                 cm.ConnParam
		ord                   uint16
	}{
		{"Write", 0, usiw.RTRWrite, usiw.RTRWrite, depth(4, 4), 4},
		{"Read", 0, usiw.RTRRead, usiw.RTRRead, depth(4, 4), 4},
		{"Send", 0, usiw.RTRSend, usiw.RTRSend, depth(4, 4), 4},
		{"Write and Read", 0, usiw.RTRWrite | usiw.RTRRead, usiw.RTRWrite | usiw.RTRRead, depth(4, 4), 4},
		{"all", 0, all, all, depth(4, 4), 4},
		{"none", 0, 0, all, depth(4, 4), 4},
		{"all, we know Write", usiw.RTRWrite, all, usiw.RTRWrite, depth(4, 4), 4},
		{"all, we know Read and Send", usiw.RTRRead | usiw.RTRSend, all, usiw.RTRRead | usiw.RTRSend, depth(4, 4), 4},
		{"Write, we know Send", usiw.RTRSend, usiw.RTRWrite, usiw.RTRSend, depth(4, 4), 4},
		{"all, but no Reads", 0, all, usiw.RTRWrite | usiw.RTRSend, depth(cm.None, 4), 4},
		{"all, but the peer has no Reads", 0, all, usiw.RTRWrite | usiw.RTRSend, depth(4, 4), 0},
		{"Read, but no Reads", 0, usiw.RTRRead, usiw.RTRRead, depth(cm.None, 4), 4},
		{"Read, but the peer has no Reads", usiw.RTRRead, usiw.RTRRead, usiw.RTRRead, depth(4, 4), 0},
		{"Write, we know Read, but the peer has no Reads", usiw.RTRRead, usiw.RTRWrite, usiw.RTRRead, depth(4, 4), 0},
	} {
		for _, rtr := range rtrKinds {
			if rtr.kind&c.answer == 0 {
				continue
			}
			t.Run(c.name+", opened by "+rtr.name, func(t *testing.T) {
				n := newRawNIC(t, usiw.Config{RTRMessages: c.ours})
				e, ln := n.end(verbs.QPCap{}), n.listen()
				p := rawDial(t, ln.Addr())
				p.write(startup(false, flagC|flagS, 2, rtrWord(c.offered, 4, c.ord)...))
				req := n.request(ln)
				require.NoError(t, req.BindQP(e.qp))
				e.recv(8, 8)
				acc := e.goAccept(soon(t), req, c.param)
				t.Cleanup(p.close)
				ird := uint16(max(c.param.ResponderResources, 0))
				told := min(ird, c.ord)
				if c.answer == usiw.RTRRead {
					told = max(told, 1)
				}
				require.Equal(t, startup(true, flagC|flagS, 2, rtrWord(c.answer, told, 4)...), p.bytes(24))
				p.crc = true
				// The QP is ready but does not send, and the connection is not established.
				require.Eventually(t, func() bool { return e.qp.State() == verbs.QPStateRTS }, rawWait,
					time.Millisecond)
				e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
				p.none(20 * time.Millisecond)
				require.Empty(t, acc)
				p.send(rtr.ulpdu)
				require.NoError(t, result(t, "Accept", acc).err)

				// A Read is answered, a Send consumes a receive, and both use a message number.
				reads, sends := uint32(1), uint32(1)
				switch rtr.kind {
				case usiw.RTRRead:
					got := [][]byte{p.read(), p.read()} // in any order
					require.ElementsMatch(t, [][]byte{rawTagged(rdmap.OpReadResponse, 1, 0, nil), rawSend(1, nil)}, got)
					reads++
				case usiw.RTRSend:
					require.Equal(t, rawSend(1, nil), p.read())
					require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, QPNum: e.qp.Num()}, e.received())
					sends++
				default:
					require.Equal(t, rawSend(1, nil), p.read())
				}
				require.Equal(t, verbs.WC{ID: 1, QPNum: e.qp.Num()}, e.sent())
				e.idle(e.rcq)
				if min(ird, c.ord) > 0 {
					p.send(rawRead(reads, rdmap.ReadRequest{}))
					require.Equal(t, rawTagged(rdmap.OpReadResponse, 0, 0, nil), p.read())
				}
				// The Write that opened the connection belongs to no request, so the immediate does
				// not follow a Write.
				p.send(rawImm(sends, 7))
				require.Equal(t, verbs.WC{ID: uint64(sends), Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm,
					ByteLen: 8, Imm64: 7, QPNum: e.qp.Num()}, e.received())
			})
		}
	}
	t.Run("Send without receive", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e, ln := n.end(verbs.QPCap{}), n.listen()
		p := rawDial(t, ln.Addr())
		p.write(startup(false, flagC|flagS, 2, rtrWord(usiw.RTRSend, 4, 4)...))
		acc := e.goAccept(soon(t), n.request(ln), depth(4, 4))
		t.Cleanup(p.close)
		p.frame()
		p.crc = true
		p.send(rawSend(1, nil))
		p.terminate(1, 2, 2, quoteDDP, rawSend(1, nil))
		p.close()
		require.ErrorIs(t, result(t, "Accept", acc).err, terminated(1, 2, 2, false))
	})
	t.Run("initiator gives up", func(t *testing.T) {
		// In the RFC's layout and in kernel siw's. Nothing identifies the latter, so the text also
		// gives its meaning.
		for _, word := range [][4]byte{{0x20, 7}, {0x20, 6}, {0x20, 5}, {0x02, 7}, {0x02, 6}, {0x02, 5}} {
			n := newRawNIC(t, usiw.Config{})
			e, ln := n.end(verbs.QPCap{}), n.listen()
			p := rawDial(t, ln.Addr())
			p.write(startup(false, flagC|flagS, 2, rtrWord(usiw.RTRSend, 4, 4)...))
			acc := e.goAccept(soon(t), n.request(ln), depth(4, 4))
			t.Cleanup(p.close)
			p.frame()
			p.crc = true
			p.send(rawUntagged(rdmap.OpTerminate, 2, 1, word[:]))
			p.eof()
			p.close()
			err := result(t, "Accept", acc).err
			require.ErrorIs(t, err, terminated(word[0]>>4, word[0]&15, word[1], true), "% x", word)
			require.ErrorContains(t, err, rdmap.TerminateText(2, 0, word[1]))
		}
	})
}

// TestSetupRefused sends frames that are no valid Request: the connection ends without a Reply, and
// the listener continues.
func TestSetupRefused(t *testing.T) {
	t.Parallel()
	n := newRawNIC(t, usiw.Config{})
	ln := n.listen()
	e := n.end(verbs.QPCap{})
	// gives up peers that send nothing
	hasty := newRawNIC(t, usiw.Config{SetupTimeout: 300 * time.Millisecond}).listen()
	long := startup(false, flagC, 1, make([]byte, 513)...)
	badKey := startup(false, flagC, 1)
	badKey[3] ^= 1
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"bad key", badKey},
		{"bad last byte of the key", bytes.Replace(startup(false, flagC, 1), []byte("Frame"), []byte("Framf"), 1)},
		{"no MPA at all", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{"key of a Reply: both sides are passive", startup(true, flagC, 1)},
		{"revision 0", startup(false, flagC|flagM, 0)},
		{"revision 3", startup(false, flagC, 3)},
		{"revision 255", startup(false, flagC, 255)},
		{"private data of 513", long},
		{"private data of 65535", append(startup(false, flagC, 1)[:18], 0xff, 0xff)},
		{"S without the enhanced word", startup(false, flagC|flagS, 2)},
		{"S with three bytes", startup(false, flagC|flagS, 2, 1, 2, 3)},
		{"silence", nil},
		{"silence after the key", startup(false, flagC, 1)[:16]},
		{"silence inside of private data", startup(false, flagC, 1, make([]byte, 100)...)[:119]},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := ln
			if strings.HasPrefix(c.name, "silence") {
				to = hasty
			}
			p := rawDial(t, to.Addr())
			p.write(c.bytes)
			p.gone()
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := hasty.Accept(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, part := range [][]byte{nil, startup(false, flagC, 1)[:10],
		startup(false, flagC, 1, make([]byte, 9)...)[:25]} {
		p := rawDial(t, ln.Addr())
		p.write(part)
		p.shut()
		p.gone()
		p = rawDial(t, ln.Addr())
		p.write(part)
		p.reset()
	}
	// None of them has reached Accept, and peers that are now silent do not delay others.
	for range 30 {
		rawDial(t, ln.Addr())
	}
	p := rawDial(t, ln.Addr())
	p.write(startup(false, flagC, 1, []byte("last")...))
	req := n.request(ln)
	require.Equal(t, []byte("last"), req.PrivateData())
	ord, ird := req.Depths()
	require.Equal(t, [2]int{-1, -1}, [2]int{ord, ird}, "revision 1 does not tell")
	acc := e.goAccept(soon(t), req, cm.ConnParam{})
	t.Cleanup(p.close)
	require.Equal(t, startup(true, flagC, 1), p.bytes(20))
	require.NoError(t, result(t, "Accept", acc).err)
}

// TestSetupSlow sends startup frames one byte at a time, with FPDUs immediately after them.
func TestSetupSlow(t *testing.T) {
	t.Run("Request", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e, ln := n.end(verbs.QPCap{}), n.listen()
		p := rawDial(t, ln.Addr())
		p.trickle(startup(false, flagC|flagS, 2, append(word(true, false, 4, true, false, 4), "private"...)...))
		req := n.request(ln)
		require.Equal(t, []byte("private"), req.PrivateData())
		ord, ird := req.Depths()
		require.Equal(t, [2]int{4, 4}, [2]int{ord, ird})
		acc := e.goAccept(soon(t), req, cm.ConnParam{})
		t.Cleanup(p.close)
		p.frame()
		p.crc = true
		p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
		require.NoError(t, result(t, "Accept", acc).err)
	})
	t.Run("Reply", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e, ln := n.end(verbs.QPCap{}), rawListen(t)
		con := e.goConnect(soon(t), ln, depth(4, 4))
		p := rawAccept(t, ln)
		p.frame()
		p.trickle(startup(true, flagC|flagS, 2, append(word(true, false, 4, true, false, 4), "private"...)...))
		p.crc = true
		require.Equal(t, rawTagged(rdmap.OpWrite, 1, 0, nil), p.read())
		r := result(t, "Connect", con)
		require.NoError(t, r.err)
		require.Equal(t, []byte("private"), r.id.PrivateData())
	})
	t.Run("FPDUs behind the Request", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e, ln := n.end(verbs.QPCap{}), n.listen()
		p := rawDial(t, ln.Addr())
		p.write(bytes.Join([][]byte{startup(false, flagC|flagS, 2, word(true, false, 4, true, false, 4)...),
			rawFPDU(rawTagged(rdmap.OpWrite, 1, 0, nil), true), rawFPDU(rawSend(1, []byte("early")), true)}, nil))
		req := n.request(ln)
		require.NoError(t, req.BindQP(e.qp))
		bufs := e.recv(5)
		acc := e.goAccept(soon(t), req, cm.ConnParam{})
		t.Cleanup(p.close)
		p.frame()
		require.NoError(t, result(t, "Accept", acc).err)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 5, QPNum: e.qp.Num()}, e.received())
		require.Equal(t, []byte("early"), bufs[0])
	})
	t.Run("FPDUs behind the Reply", func(t *testing.T) {
		// Kernel siw may do this, because it does not wait for the initiator's first FPDU.
		n := newRawNIC(t, usiw.Config{RTR: usiw.Off})
		e, ln := n.end(verbs.QPCap{}), rawListen(t)
		id, err := cm.Resolve(soon(t), ln.Addr().String(), n.config())
		require.NoError(t, err)
		defer id.Close()
		require.NoError(t, id.BindQP(e.qp))
		bufs := e.recv(5)
		con := e.goConnect(soon(t), ln, depth(4, 4))
		p := rawAccept(t, ln)
		p.frame()
		p.write(append(startup(true, flagC|flagS, 2, plain(4, 4)...), rawFPDU(rawSend(1, []byte("early")), true)...))
		require.NoError(t, result(t, "Connect", con).err)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 5, QPNum: e.qp.Num()}, e.received())
		require.Equal(t, []byte("early"), bufs[0])
	})
}

// TestSetupRequest checks every byte of the Request, and the effect of the Replies to it.
func TestSetupRequest(t *testing.T) {
	t.Parallel()
	rep := func(flags, rev byte, pd ...byte) []byte { return startup(true, flags, rev, pd...) }
	req := func(flags, rev byte, pd ...byte) []byte { return startup(false, flags, rev, pd...) }
	p2p := func(ird, ord uint16) []byte { return word(true, false, ird, true, false, ord) }
	type outcome struct {
		crc      bool
		mark     bool // the NIC sends markers
		rtr      bool
		ird, ord int
		term     uint8 // code of a Terminate 2/0
	}
	cases := []struct {
		name    string
		cfg     usiw.Config
		param   cm.ConnParam
		request []byte
		reply   []byte
		want    outcome
	}{
		{"revision 1", usiw.Config{Rev: 1}, depth(4, 4), req(0, 1), rep(flagC, 1),
			outcome{crc: true, ird: 4, ord: 4}},
		{"revision 1, CRC asked for here", usiw.Config{Rev: 1, CRC: usiw.On}, depth(4, 4), req(flagC, 1), rep(0, 1),
			outcome{crc: true, ird: 4, ord: 4}},
		{"revision 1, CRC asked for there", usiw.Config{Rev: 1, CRC: usiw.Off}, depth(4, 4), req(0, 1), rep(flagC, 1),
			outcome{crc: true, ird: 4, ord: 4}},
		{"revision 1, CRC asked for nowhere", usiw.Config{Rev: 1, CRC: usiw.Off}, depth(4, 4), req(0, 1), rep(0, 1),
			outcome{ird: 4, ord: 4}},
		{"revision 1, S means nothing", usiw.Config{Rev: 1}, depth(4, 4), req(0, 1),
			rep(flagC|flagS, 1, plain(1, 1)...), outcome{crc: true, ird: 4, ord: 4}},
		{"reserved bits", usiw.Config{Rev: 1}, depth(4, 4), req(0, 1), rep(flagC|0x0f, 1),
			outcome{crc: true, ird: 4, ord: 4}},

		{"peer to peer", usiw.Config{}, depth(4, 5), req(flagS, 2, p2p(4, 5)...),
			rep(flagC|flagS, 2, p2p(5, 4)...), outcome{crc: true, rtr: true, ird: 4, ord: 5}},
		{"peer to peer, CRC asked for here", usiw.Config{CRC: usiw.On}, depth(4, 4), req(flagC|flagS, 2, p2p(4, 4)...),
			rep(flagS, 2, p2p(4, 4)...), outcome{crc: true, rtr: true, ird: 4, ord: 4}},
		{"peer to peer, CRC asked for there", usiw.Config{CRC: usiw.Off}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, p2p(4, 4)...), outcome{crc: true, rtr: true, ird: 4, ord: 4}},
		{"peer to peer, CRC asked for nowhere", usiw.Config{CRC: usiw.Off}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagS, 2, p2p(4, 4)...), outcome{rtr: true, ird: 4, ord: 4}},
		{"RTR by Write or Read", usiw.Config{}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, word(true, false, 4, true, true, 4)...), outcome{crc: true, rtr: true, ird: 4, ord: 4}},
		{"client and server", usiw.Config{RTR: usiw.Off}, depth(4, 4), req(flagS, 2, plain(4, 4)...),
			rep(flagC|flagS, 2, plain(4, 4)...), outcome{crc: true, ird: 4, ord: 4}},
		{"client and server, as the responder wants it", usiw.Config{}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, plain(4, 4)...), outcome{crc: true, ird: 4, ord: 4}},
		{"A where it was not asked for", usiw.Config{RTR: usiw.Off}, depth(4, 4), req(flagS, 2, plain(4, 4)...),
			rep(flagC|flagS, 2, p2p(4, 4)...), outcome{crc: true, ird: 4, ord: 4}},

		{"the peer serves less", usiw.Config{}, depth(8, 8), req(flagS, 2, p2p(8, 8)...),
			rep(flagC|flagS, 2, p2p(3, 8)...), outcome{crc: true, rtr: true, ird: 8, ord: 3}},
		{"the peer serves more", usiw.Config{}, depth(8, 8), req(flagS, 2, p2p(8, 8)...),
			rep(flagC|flagS, 2, p2p(100, 8)...), outcome{crc: true, rtr: true, ird: 8, ord: 8}},
		{"the peer serves none", usiw.Config{}, depth(8, 8), req(flagS, 2, p2p(8, 8)...),
			rep(flagC|flagS, 2, p2p(0, 0)...), outcome{crc: true, rtr: true, ird: 0, ord: 0}},
		{"not negotiated", usiw.Config{}, depth(8, 7), req(flagS, 2, p2p(8, 7)...),
			rep(flagC|flagS, 2, p2p(0x3fff, 0x3fff)...), outcome{crc: true, rtr: true, ird: 8, ord: 7}},
		{"no Reads", usiw.Config{}, depth(cm.None, cm.None), req(flagS, 2, p2p(0, 0)...),
			rep(flagC|flagS, 2, p2p(8, 0)...), outcome{crc: true, rtr: true}},
		{"all of the device", usiw.Config{}, depth(0, 0), req(flagS, 2, p2p(128, 128)...),
			rep(flagC|flagS, 2, p2p(128, 128)...), outcome{crc: true, rtr: true, ird: 128, ord: 128}},

		{"no power of two", usiw.Config{}, depth(7, 7), req(flagS, 2, p2p(4, 7)...),
			rep(flagC|flagS, 2, p2p(7, 3)...), outcome{crc: true, rtr: true, ird: 3, ord: 7}},
		{"the peer asks for more than it was told, but not for too much", usiw.Config{}, depth(7, 7),
			req(flagS, 2, p2p(4, 7)...),
			rep(flagC|flagS, 2, p2p(7, 7)...), outcome{crc: true, rtr: true, ird: 7, ord: 7}},

		{"the peer asks for one more than we serve", usiw.Config{}, depth(8, 8), req(flagS, 2, p2p(8, 8)...),
			rep(flagC|flagS, 2, p2p(8, 9)...), outcome{crc: true, term: 6}},
		{"the peer asks for Reads and we serve none", usiw.Config{}, depth(cm.None, 8),
			req(flagS, 2, p2p(0, 8)...), rep(flagC|flagS, 2, p2p(8, 1)...), outcome{crc: true, term: 6}},
		{"the same without CRC", usiw.Config{CRC: usiw.Off}, depth(cm.None, 8), req(flagS, 2, p2p(0, 8)...),
			rep(flagS, 2, p2p(8, 1)...), outcome{term: 6}},
		{"Terminate with markers", usiw.Config{}, depth(cm.None, 8), req(flagS, 2, p2p(0, 8)...),
			rep(flagC|flagS|flagM, 2, p2p(8, 1)...), outcome{crc: true, mark: true, term: 6}},
		{"RTR by Read only", usiw.Config{}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, word(true, false, 4, false, true, 4)...), outcome{crc: true, term: 7}},
		{"RTR by Send only", usiw.Config{}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, word(true, true, 4, false, false, 4)...), outcome{crc: true, term: 7}},
		{"no RTR at all", usiw.Config{}, depth(4, 4), req(flagS, 2, p2p(4, 4)...),
			rep(flagC|flagS, 2, word(true, false, 4, false, false, 4)...), outcome{crc: true, term: 7}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newRawNIC(t, c.cfg)
			e, ln := n.end(verbs.QPCap{}), rawListen(t)
			con := e.goConnect(soon(t), ln, c.param)
			p := rawAccept(t, ln)
			require.Equal(t, c.request, p.bytes(len(c.request)))
			p.none(5 * time.Millisecond) // nothing before the Reply
			p.write(c.reply)
			p.crc, p.markIn = c.want.crc, c.want.mark
			if c.want.term != 0 {
				p.terminate(2, 0, c.want.term, quoteNone, nil)
				p.close()
				require.ErrorIs(t, result(t, "Connect", con).err, cm.ErrProtocol)
				require.Equal(t, verbs.QPStateInit, e.qp.State())
				return
			}
			if c.want.rtr {
				require.Equal(t, rawTagged(rdmap.OpWrite, 1, 0, nil), p.read())
			}
			r := result(t, "Connect", con)
			require.NoError(t, r.err)
			ord, ird := r.id.Depths()
			require.Equal(t, [2]int{c.want.ird, c.want.ord}, [2]int{ird, ord})
			told := [2]int{-1, -1}
			if c.reply[16]&flagS != 0 && c.reply[17] == 2 {
				told = [2]int{int(binary.BigEndian.Uint16(c.reply[20:])) & 0x3fff,
					int(binary.BigEndian.Uint16(c.reply[22:])) & 0x3fff}
			}
			ord, ird = r.id.PeerDepths()
			require.Equal(t, told, [2]int{ird, ord})
			p.none(5 * time.Millisecond)
			e.post(verbs.SendWR{Opcode: verbs.WRSend})
			require.Equal(t, rawSend(1, nil), p.read())
			e.recv(8)
			b := rawFPDU(rawSend(1, nil), c.want.crc)
			b[len(b)-1] ^= 1
			p.write(b)
			if c.want.crc {
				p.terminate(2, 0, 2, quoteNone, nil)
			} else {
				require.Equal(t, verbs.WCSuccess, e.received().Status)
			}
		})
	}
}

// TestSetupBadReply sends the NIC invalid Replies: Connect returns the reason, the TCP connection
// ends without an FPDU, and the QP can be connected through another ID.
func TestSetupBadReply(t *testing.T) {
	t.Parallel()
	good := startup(true, flagC|flagS, 2, word(true, false, 4, true, false, 4)...)
	badKey := bytes.Clone(good)
	badKey[15] ^= 0x20
	for _, c := range []struct {
		name  string
		reply []byte
		end   func(p *rawPeer) // after the reply
		want  error
	}{
		{"bad key", badKey, nil, cm.ErrProtocol},
		{"no MPA at all", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), nil, cm.ErrProtocol},
		{"key of a Request: both sides are active", startup(false, flagC|flagS, 2,
			word(true, false, 4, true, false, 4)...), nil, cm.ErrProtocol},
		{"revision 0", startup(true, flagC, 0), nil, cm.ErrProtocol},
		{"revision 1", startup(true, flagC, 1), nil, cm.ErrProtocol},
		{"revision 3", startup(true, flagC|flagS, 3, plain(4, 4)...), nil, cm.ErrProtocol},
		{"enhanced word missing", startup(true, flagC, 2), nil, cm.ErrProtocol},
		{"S without the enhanced word", startup(true, flagC|flagS, 2), nil, cm.ErrProtocol},
		{"S with three bytes", startup(true, flagC|flagS, 2, 0, 0, 0), nil, cm.ErrProtocol},
		{"private data of 513", startup(true, flagC|flagS, 2, make([]byte, 513)...), nil, cm.ErrProtocol},
		{"silence", nil, nil, cm.ErrSetupTimeout},
		{"silence inside of the frame", good[:21], nil, cm.ErrSetupTimeout},
		{"FIN", nil, (*rawPeer).shut, io.EOF},
		{"FIN inside of the frame", good[:19], (*rawPeer).shut, io.ErrUnexpectedEOF},
		{"RST", nil, (*rawPeer).reset, nil},
		{"RST inside of the frame", good[:19], (*rawPeer).reset, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := usiw.Config{}
			if errors.Is(c.want, cm.ErrSetupTimeout) {
				cfg.SetupTimeout = 2 * time.Second // also applies to the second attempt
			}
			n := newRawNIC(t, cfg)
			e, ln := n.end(verbs.QPCap{}), rawListen(t)
			con := e.goConnect(soon(t), ln, depth(4, 4))
			p := rawAccept(t, ln)
			p.frame()
			p.write(c.reply)
			if c.end != nil {
				c.end(p)
			}
			err := result(t, "Connect", con).err
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			var op *cm.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, errors.Is(c.want, cm.ErrSetupTimeout), op.Timeout())
			if c.name[:3] != "RST" {
				p.gone()
			}
			p.close()

			require.Equal(t, verbs.QPStateInit, e.qp.State())
			con = e.goConnect(soon(t), ln, depth(4, 4))
			p = rawAccept(t, ln)
			p.frame()
			p.write(good)
			require.NoError(t, result(t, "Connect", con).err)
		})
	}
}

// TestSetupReject sends and receives rejections with private data.
func TestSetupReject(t *testing.T) {
	t.Run("by the responder", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		ln := n.listen()
		for _, c := range []struct {
			name           string
			request, reply []byte
			most           int
		}{
			{"revision 1", startup(false, flagC, 1), startup(true, flagC|flagR, 1), 512},
			{"revision 2, plain", startup(false, 0, 2), startup(true, flagR, 2), 512},
			{"revision 2", startup(false, flagC|flagS, 2, word(true, false, 4, true, false, 4)...),
				startup(true, flagC|flagS|flagR, 2, 0, 0, 0, 0), 508},
		} {
			t.Run(c.name, func(t *testing.T) {
				for _, size := range []int{0, 1, c.most} {
					p := rawDial(t, ln.Addr())
					p.write(c.request)
					req := n.request(ln)
					data := pattern(size, 3)
					done := make(chan error, 1)
					go func() { done <- req.Reject(data) }()
					want := append(bytes.Clone(c.reply), data...)
					k := len(want) - mpa.FrameLen
					want[18], want[19] = byte(k>>8), byte(k)
					require.Equal(t, want, p.bytes(len(want)))
					p.eof()
					p.close()
					require.NoError(t, result(t, "Reject", done))
				}
				p := rawDial(t, ln.Addr())
				p.write(c.request)
				var limit *verbs.LimitError
				err := n.request(ln).Reject(make([]byte, c.most+1))
				require.ErrorAs(t, err, &limit)
				require.Equal(t, verbs.LimitError{Name: "private data", Limit: uint64(c.most),
					Value: uint64(c.most + 1)}, *limit)
				p.gone()
			})
		}
	})
	// More than the NIC keeps open after it rejects them.
	t.Run("peers that stay", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		ln := n.listen()
		peers := make([]*rawPeer, 300)
		within(t, rawWait, "Reject waits for its peer", func() {
			for i := range peers {
				peers[i] = rawDial(t, ln.Addr())
				peers[i].write(startup(false, flagC, 1))
				require.NoError(t, n.request(ln).Reject([]byte("no")))
			}
		})
		for _, p := range peers {
			f, err := mpa.ReadFrame(p.conn)
			require.NoError(t, err)
			require.True(t, f.Reject)
			require.Equal(t, "no", string(f.PrivateData))
			p.eof()
			p.close()
		}
	})
	t.Run("backlog", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		cfg := n.config()
		cfg.Backlog = 2
		ln, err := cm.Listen(soon(t), "127.0.0.1:0", cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ln.Close()) })
		const peers = 5
		refused := make(chan string, peers) // the private data of the rejections
		for range peers {
			p := rawDial(t, ln.Addr())
			p.write(startup(false, flagC|flagS, 2, plain(4, 4)...))
			require.NoError(t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
			go func() {
				f, err := mpa.ReadFrame(p.conn)
				if err != nil || !f.Reject || f.Enhanced != (mpa.Enhanced{}) || !f.HasEnhanced {
					refused <- fmt.Sprint("not refused: ", f, err)
					return
				}
				refused <- string(f.PrivateData)
				p.close()
			}()
		}
		for range peers - 2 {
			require.Equal(t, "goverbs: backlog full", result(t, "those for whom there is no room", refused))
		}
		for range 2 {
			require.NoError(t, n.request(ln).Reject([]byte("late")))
			require.Equal(t, "late", result(t, "those who waited", refused))
		}
	})
	t.Run("by the peer", func(t *testing.T) {
		for _, c := range []struct {
			name string
			rev  int
			head []byte
			want cm.RejectedError
		}{
			{"revision 1", 1, startup(true, flagC|flagR, 1), cm.RejectedError{IRD: -1, ORD: -1}},
			{"revision 2", 2, startup(true, flagC|flagS|flagR, 2, plain(7, 20)...), cm.RejectedError{IRD: 7, ORD: 20}},
			{"revision 2 refused as revision 1", 2, startup(true, flagC|flagR, 1), cm.RejectedError{IRD: -1, ORD: -1}},
			{"revision 2 with markers", 2, startup(true, flagC|flagS|flagR|flagM, 2, plain(0, 0)...),
				cm.RejectedError{}},
		} {
			t.Run(c.name, func(t *testing.T) {
				most := 512 - (len(c.head) - mpa.FrameLen)
				for _, size := range []int{0, 1, most} {
					n := newRawNIC(t, usiw.Config{Rev: c.rev})
					e, ln := n.end(verbs.QPCap{}), rawListen(t)
					con := e.goConnect(soon(t), ln, depth(4, 4))
					p := rawAccept(t, ln)
					p.frame()
					data := pattern(size, 5)
					b := append(bytes.Clone(c.head), data...)
					k := len(b) - mpa.FrameLen
					b[18], b[19] = byte(k>>8), byte(k)
					p.write(b)
					err := result(t, "Connect", con).err
					require.ErrorIs(t, err, cm.ErrRejected)
					var rejected *cm.RejectedError
					require.ErrorAs(t, err, &rejected)
					require.Equal(t, [2]int{c.want.IRD, c.want.ORD}, [2]int{rejected.IRD, rejected.ORD})
					require.Equal(t, data, append([]byte{}, rejected.PrivateData...))
					p.gone()
					require.Equal(t, verbs.QPStateInit, e.qp.State())
				}
			})
		}
	})
}

// TestSetupPrivateData carries private data of every length both ways; one byte more is rejected by
// name.
func TestSetupPrivateData(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   usiw.Config
		frame mpa.Frame
		most  int
	}{
		{"revision 1", usiw.Config{Rev: 1}, mpa.Frame{Rev: 1, CRC: true}, 512},
		{"revision 2", usiw.Config{}, rawRequest(), 508},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRawNIC(t, c.cfg)
			tooMuch := verbs.LimitError{Name: "private data", Limit: uint64(c.most), Value: uint64(c.most + 1)}
			for _, size := range []int{0, 1, 251, c.most} {
				ours, theirs := pattern(size, 1), pattern(size, 2)
				n := n.as(t)
				frame := c.frame
				frame.PrivateData = theirs

				e, ln := n.end(verbs.QPCap{}), n.listen()
				p := rawDial(t, ln.Addr())
				p.sendFrame(frame)
				req := n.request(ln)
				require.Equal(t, theirs, append([]byte{}, req.PrivateData()...))
				acc := e.goAccept(soon(t), req, cm.ConnParam{PrivateData: ours})
				t.Cleanup(p.close)
				require.Equal(t, ours, append([]byte{}, p.frame().PrivateData...))
				p.crc = true
				p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
				r := result(t, "Accept", acc)
				require.NoError(t, r.err)
				require.Equal(t, theirs, append([]byte{}, r.id.PrivateData()...))

				e = n.end(verbs.QPCap{})
				raw := rawListen(t)
				con := e.goConnect(soon(t), raw, cm.ConnParam{PrivateData: ours})
				p = rawAccept(t, raw)
				require.Equal(t, ours, append([]byte{}, p.frame().PrivateData...))
				frame.Reply = true
				p.sendFrame(frame)
				r = result(t, "Connect", con)
				require.NoError(t, r.err)
				require.Equal(t, theirs, append([]byte{}, r.id.PrivateData()...))
			}
			more := cm.ConnParam{PrivateData: make([]byte, c.most+1)}
			var limit *verbs.LimitError
			raw := rawListen(t)
			require.ErrorAs(t, result(t, "Connect", n.end(verbs.QPCap{}).goConnect(soon(t), raw, more)).err, &limit)
			require.Equal(t, tooMuch, *limit)
			require.NoError(t, raw.SetDeadline(time.Now().Add(20*time.Millisecond)))
			_, err := raw.Accept()
			require.Error(t, err, "nothing was sent")

			ln := n.listen()
			p := rawDial(t, ln.Addr())
			p.sendFrame(c.frame)
			limit = nil
			require.ErrorAs(t, result(t, "Accept", n.end(verbs.QPCap{}).goAccept(soon(t), n.request(ln), more)).err,
				&limit)
			require.Equal(t, tooMuch, *limit)
			p.gone()
		})
	}
}

// TestSetupTimeouts: between the frames the peer stops sending, closes, or is given up. Accept and
// Connect return in time, and nothing is left behind.
func TestSetupTimeouts(t *testing.T) {
	t.Parallel()
	const timeout, otherwise = time.Second, 5 * time.Second // of set-up
	for _, c := range []struct {
		name string
		do   func(e *rawEnd, p *rawPeer, cancel func())
		want error
	}{
		{"silence instead of RTR", func(*rawEnd, *rawPeer, func()) {}, cm.ErrSetupTimeout},
		{"FIN instead of RTR", func(_ *rawEnd, p *rawPeer, _ func()) { p.shut() }, io.EOF},
		{"half an RTR and FIN", func(_ *rawEnd, p *rawPeer, _ func()) {
			p.write(rawFPDU(rawTagged(rdmap.OpWrite, 1, 0, nil), true)[:7])
			p.shut()
		}, io.ErrUnexpectedEOF},
		{"RST instead of RTR", func(_ *rawEnd, p *rawPeer, _ func()) { p.reset() }, nil},
		{"given up", func(e *rawEnd, _ *rawPeer, cancel func()) {
			require.Eventually(t, func() bool { return e.qp.State() == verbs.QPStateRTS }, rawWait, time.Millisecond)
			cancel()
		}, context.Canceled},
		{"bad RTR", func(_ *rawEnd, p *rawPeer, _ func()) {
			b := rawFPDU(rawTagged(rdmap.OpWrite, 1, 0, nil), true)
			b[19] ^= 1
			p.write(b)
		}, terminated(2, 0, 2, false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			silent := errors.Is(c.want, cm.ErrSetupTimeout)
			cfg := usiw.Config{CloseTimeout: 200 * time.Millisecond}
			if silent {
				cfg.SetupTimeout = timeout
			}
			n := newRawNIC(t, cfg)
			e, ln := n.end(verbs.QPCap{}), n.listen()
			p := rawDial(t, ln.Addr())
			p.sendFrame(rawRequest())
			ctx, cancel := context.WithCancel(soon(t))
			defer cancel()
			req := n.request(ln)
			require.NoError(t, req.BindQP(e.qp))
			e.recv(8)
			began := time.Now()
			acc := e.goAccept(ctx, req, cm.ConnParam{})
			t.Cleanup(p.close)
			p.frame()
			p.crc = true
			c.do(e, p, cancel)
			r := result(t, "Accept", acc)
			require.Nil(t, r.id)
			require.Error(t, r.err)
			if c.want != nil {
				require.ErrorIs(t, r.err, c.want)
			}
			require.Less(t, time.Since(began), otherwise)
			require.Equal(t, verbs.WC{ID: 1, Status: verbs.WCWRFlushErr, QPNum: e.qp.Num()}, e.received())
			require.Equal(t, verbs.QPStateErr, e.qp.State())
		})
	}
	t.Run("peer gone before Accept", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{CloseTimeout: 200 * time.Millisecond})
		ln := n.listen()
		for _, leave := range []func(*rawPeer){(*rawPeer).close, (*rawPeer).reset} {
			p := rawDial(t, ln.Addr())
			p.sendFrame(rawRequest())
			req := n.request(ln)
			leave(p)
			e := n.end(verbs.QPCap{})
			r := result(t, "Accept", e.goAccept(soon(t), req, cm.ConnParam{}))
			require.Error(t, r.err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		ln := rawListen(t)
		require.NoError(t, ln.Close())
		err := result(t, "Connect", n.end(verbs.QPCap{}).goConnect(soon(t), ln, cm.ConnParam{})).err
		require.Error(t, err)
		var op net.Error
		require.ErrorAs(t, err, &op)
		require.False(t, op.Timeout())
	})
	t.Run("Connect given up", func(t *testing.T) {
		n := newRawNIC(t, usiw.Config{})
		e, ln := n.end(verbs.QPCap{}), rawListen(t)
		ctx, cancel := context.WithCancel(soon(t))
		con := e.goConnect(ctx, ln, cm.ConnParam{})
		p := rawAccept(t, ln)
		p.frame()
		cancel()
		require.ErrorIs(t, result(t, "Connect", con).err, context.Canceled)
		p.gone()
		require.Equal(t, verbs.QPStateInit, e.qp.State())
	})
}

// TestSetupORD checks that the agreed depths are respected: no more requests are in progress than
// the peer serves.
func TestSetupORD(t *testing.T) {
	t.Parallel()
	frame := rawRequest()
	frame.Enhanced.IRD = 2
	for _, active := range []bool{true, false} {
		n := newRawNIC(t, usiw.Config{})
		var e *rawEnd
		var p *rawPeer
		if active {
			e, p = n.active(rawOpts{frame: &frame})
		} else {
			e, p = n.passive(rawOpts{frame: &frame})
		}
		sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
		for id := uint64(1); id <= 6; id++ {
			op := verbs.WRRDMARead
			if id%2 == 0 {
				op = verbs.WRAtomicFetchAndAdd
			}
			e.post(verbs.SendWR{ID: id, Opcode: op, SGL: []verbs.SGE{e.sge(sink)}})
		}
		var ids []uint32
		take := func() {
			u := p.read()
			if _, op := rdmap.ParseControl(u[1]); op == rdmap.OpAtomicRequest {
				r, err := rdmap.ParseAtomicRequest(u[18:])
				require.NoError(t, err)
				ids = append(ids, r.ID)
			}
		}
		take()
		take()
		for id := uint64(1); id <= 6; id++ {
			if id <= 5 {
				p.none(5 * time.Millisecond)
			}
			if id%2 == 0 {
				p.send(rawAtomicResponse(uint32(id/2), ids[id/2-1], id))
			} else {
				p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, make([]byte, 8)))
			}
			wc := e.sent()
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.Equal(t, id, wc.ID)
			if id <= 4 {
				take()
			}
		}
	}
}

// TestSetupRTRRequest opens connections as the initiator, with each set of RTR messages that both
// sides support.
func TestSetupRTRRequest(t *testing.T) {
	t.Parallel()
	const all = usiw.RTRWrite | usiw.RTRRead | usiw.RTRSend
	for _, c := range []struct {
		name          string
		ours, answer  usiw.RTRMessages
		ord           int
		want          usiw.RTRMessages // 0 = Terminate 2/0/07
		irdOfThePeers uint16
	}{
		{"Write", 0, usiw.RTRWrite, 4, usiw.RTRWrite, 4},
		{"Read", usiw.RTRRead, usiw.RTRRead, 4, usiw.RTRRead, 4},
		{"Send", usiw.RTRSend, usiw.RTRSend, 4, usiw.RTRSend, 4},
		{"all", all, all, 4, usiw.RTRWrite, 4},
		{"all, the peer knows Read", all, usiw.RTRRead, 4, usiw.RTRRead, 4},
		{"all, the peer knows Send", all, usiw.RTRSend, 4, usiw.RTRSend, 4},
		{"all, the peer knows Read and Send", all, usiw.RTRRead | usiw.RTRSend, 4, usiw.RTRRead, 4},
		{"the same without Reads", all, usiw.RTRRead | usiw.RTRSend, cm.None, usiw.RTRSend, 4},
		{"the same, but the peer serves no Reads", all, usiw.RTRRead | usiw.RTRSend, 4, usiw.RTRSend, 0},
		{"Read, but we use none", usiw.RTRRead, usiw.RTRRead, cm.None, usiw.RTRRead, 4},
		{"Read, but the peer serves none", usiw.RTRRead, usiw.RTRRead, 4, 0, 0},
		{"Read and Send, the peer knows Write", usiw.RTRRead | usiw.RTRSend, usiw.RTRWrite, 4, 0, 4},
		{"Write, the peer knows the others", usiw.RTRWrite, usiw.RTRRead | usiw.RTRSend, 4, 0, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newRawNIC(t, usiw.Config{RTRMessages: c.ours})
			e, ln := n.end(verbs.QPCap{}), rawListen(t)
			con := e.goConnect(soon(t), ln, depth(4, c.ord))
			p := rawAccept(t, ln)
			offer := c.ours
			if offer == 0 {
				offer = usiw.RTRWrite
			}
			require.Equal(t, startup(false, flagS, 2, rtrWord(offer, 4, uint16(max(c.ord, 0)))...), p.bytes(24))
			p.write(startup(true, flagC|flagS, 2, rtrWord(c.answer, c.irdOfThePeers, 4)...))
			p.crc = true
			if c.want == 0 {
				p.terminate(2, 0, 7, quoteNone, nil)
				p.close()
				require.ErrorIs(t, result(t, "Connect", con).err, cm.ErrProtocol)
				return
			}
			for _, rtr := range rtrKinds {
				if rtr.kind == c.want {
					require.Equal(t, rtr.ulpdu, p.read())
				}
			}
			require.NoError(t, result(t, "Connect", con).err)
			p.none(5 * time.Millisecond)
			e.idle(e.scq)
			sends, reads := uint32(1), uint32(1)
			switch c.want {
			case usiw.RTRSend:
				sends++
			case usiw.RTRRead:
				reads++
			}
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
			require.Equal(t, rawSend(sends, nil), p.read())
			require.Equal(t, verbs.WC{ID: 1, QPNum: e.qp.Num()}, e.sent())
			if c.ord == cm.None || c.irdOfThePeers == 0 {
				return
			}
			// The Read that opened the connection occupies one slot of the depth until it is
			// answered.
			sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
			for id := uint64(1); id <= 4; id++ {
				e.post(verbs.SendWR{ID: id, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{e.sge(sink)}, RKey: 3,
					RemoteAddr: 8})
			}
			read := rdmap.ReadRequest{SinkSTag: sink.LKey(), SinkTO: 0x100, Size: 8, SrcSTag: 3, SrcTO: 8}
			for i := range uint32(3) {
				require.Equal(t, rawRead(reads+i, read), p.read())
			}
			if c.want == usiw.RTRRead {
				p.none(5 * time.Millisecond)
				p.send(rawTagged(rdmap.OpReadResponse, 1, 0, nil))
			}
			require.Equal(t, rawRead(reads+3, read), p.read())
			e.idle(e.scq)
			for id := uint64(1); id <= 4; id++ {
				p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, eight))
				require.Equal(t, verbs.WC{ID: id, Opcode: verbs.WCRDMARead, ByteLen: 8, QPNum: e.qp.Num()}, e.sent())
			}
		})
	}
}

// TestSetupMarkers negotiates markers for each direction and sends messages of many sizes both
// ways.
func TestSetupMarkers(t *testing.T) {
	for _, active := range []bool{false, true} {
		for _, crc := range []bool{false, true} {
			for _, ours := range []bool{false, true} {
				for _, theirs := range []bool{false, true} {
					t.Run(fmt.Sprintf("active %v, CRC %v, asked for here %v, asked for there %v", active, crc, ours,
						theirs), func(t *testing.T) {
						cfg := usiw.Config{CRC: usiw.Off, MTU: 2000}
						frame := rawRequest()
						frame.CRC, frame.Markers = crc, theirs
						if ours {
							cfg.Markers = usiw.On
						}
						n := newRawNIC(t, cfg)
						var e *rawEnd
						var p *rawPeer
						if active {
							e, p = n.active(rawOpts{frame: &frame})
						} else {
							e, p = n.passive(rawOpts{frame: &frame})
						}
						require.Equal(t, theirs, p.markIn)
						require.Equal(t, ours, p.markOut)
						most := mpa.MULPDU(2000, theirs) - 18
						msn := uint32(0)
						for _, size := range []int{0, 1, 471, 480, 481, 488, 500, 512, 1000, 1500, most, most + 1,
							5000} {
							msn++
							want := pattern(size, byte(size))
							buf := e.recv(size)[0]
							p.send(rawSend(msn, want))
							wc := e.received()
							require.Equal(t, verbs.WCSuccess, wc.Status)
							require.EqualValues(t, size, wc.ByteLen)
							require.True(t, bytes.Equal(want, buf))
							var sgl []verbs.SGE
							if size > 0 {
								sgl = []verbs.SGE{e.sge(e.region(e.pd, want, 0x4000, 0))}
							}
							e.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: sgl})
							for got, last := 0, false; !last; {
								u := p.read()
								body := u[18:]
								require.True(t, bytes.Equal(want[got:got+len(body)], body))
								require.LessOrEqual(t, len(body), most)
								got += len(body)
								last = got == size
								require.Equal(t, last, u[0]&0x40 != 0)
								require.True(t, last || len(body) == most)
							}
							require.Equal(t, verbs.WCSuccess, e.sent().Status)
						}
						// One byte at a time, across a marker.
						buf := e.recv(1000)[0]
						p.trickle(p.encode(rawSend(msn+1, pattern(1000, 3))))
						require.Equal(t, verbs.WCSuccess, e.received().Status)
						require.True(t, bytes.Equal(pattern(1000, 3), buf))
						// The Terminate has a marker too, if one falls into it.
						bad := rawTagged(rdmap.OpWrite, 1, 2, make([]byte, 600))
						p.send(bad)
						p.terminate(1, 1, 0, quoteDDP, bad)
					})
				}
			}
		}
	}
	t.Run("wrong pointer", func(t *testing.T) {
		for _, first := range []bool{true, false} {
			e, p := newRawNIC(t, usiw.Config{Markers: usiw.On}).passive(rawOpts{})
			mr := e.mr(600, 0, rawAccess)
			b := p.encode(rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 600)))
			at := 512 - int(p.out-uint64(len(b))) // offset of the marker in the FPDU
			if !first {
				p.write(b)
				b = p.encode(rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 600)))
				at = 1024 - int(p.out-uint64(len(b)))
			}
			b[at+3] ^= 4
			mpa.PutCRC(b[len(b)-4:], mpa.CRC(0, b[:len(b)-4]))
			p.write(b)
			p.terminate(2, 0, 3, quoteNone, nil)
			p.close()
			e.ended(terminated(2, 0, 3, false))
			if first {
				untouched(t, mr)
			}
		}
	})
	t.Run("bad CRC", func(t *testing.T) {
		e, p := newRawNIC(t, usiw.Config{Markers: usiw.On}).passive(rawOpts{})
		mr := e.mr(600, 0, rawAccess)
		b := p.encode(rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 600)))
		b[512-int(p.out-uint64(len(b)))] ^= 1 // a reserved bit of the marker, which the CRC covers
		p.write(b)
		p.terminate(2, 0, 2, quoteNone, nil)
		p.close()
		e.ended(terminated(2, 0, 2, false))
		untouched(t, mr)
	})
	t.Run("missing", func(t *testing.T) {
		e, p := newRawNIC(t, usiw.Config{Markers: usiw.On}).passive(rawOpts{})
		mr := e.mr(600, 0, rawAccess)
		b := rawFPDU(rawTagged(rdmap.OpWrite, mr.RKey(), 0, make([]byte, 600)), true)
		p.write(append(b, b...))
		p.terminate(2, 0, 2, quoteNone, nil)
		p.close()
		e.ended(terminated(2, 0, 2, false))
		untouched(t, mr)
	})
}
