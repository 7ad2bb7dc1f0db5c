// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// TestTerminate ends connections with Terminate messages. tshark must show the error and the quoted
// headers. All are in one file.
func TestTerminate(t *testing.T) {
	const bogus = 0x100 // distance from a key to another index
	read := func(wr verbs.SendWR) func(a, b *end) {
		return func(a, b *end) {
			wr.Opcode, wr.SGL = verbs.WRRDMARead, a.sgl(sink, 64)
			wr.RemoteAddr, wr.RKey = wr.RemoteAddr+b.addr(source), wr.RKey+b.MR.RKey()
			a.do(wr)
		}
	}
	write := func(wr verbs.SendWR) func(a, b *end) {
		return func(a, b *end) {
			wr.Opcode, wr.SGL = verbs.WRRDMAWrite, a.sgl(source, 64)
			wr.RemoteAddr, wr.RKey = wr.RemoteAddr+b.addr(target), wr.RKey+b.MR.RKey()
			a.do(wr)
		}
	}
	fetchAdd := func(wr verbs.SendWR) func(a, b *end) {
		return func(a, b *end) {
			wr.Opcode, wr.SGL, wr.Add = verbs.WRAtomicFetchAndAdd, a.sgl(word+8, 8), 1
			wr.RemoteAddr, wr.RKey = wr.RemoteAddr+b.addr(word), wr.RKey+b.MR.RKey()
			a.do(wr)
		}
	}
	type code struct{ layer, etype, code uint64 }
	cases := []struct {
		name   string
		run    func(a, b *end)
		from   int // the end that sends the Terminate
		code   code
		quotes rdmap.Opcode // the quoted message; OpTerminate = none
	}{
		{"Read, key", read(verbs.SendWR{RKey: bogus}), passive, code{0, 1, 0}, rdmap.OpReadRequest},
		{"Read, bounds", read(verbs.SendWR{RemoteAddr: memory}), passive, code{0, 1, 1}, rdmap.OpReadRequest},
		{"atomic, key", fetchAdd(verbs.SendWR{RKey: bogus}), passive, code{0, 1, 0}, rdmap.OpAtomicRequest},
		{"atomic, alignment", fetchAdd(verbs.SendWR{RemoteAddr: 4}), passive, code{0, 2, 7}, rdmap.OpAtomicRequest},
		{"Write, key", write(verbs.SendWR{RKey: bogus}), passive, code{1, 1, 0}, rdmap.OpWrite},
		{"Write, bounds", write(verbs.SendWR{RemoteAddr: memory - target - 63}), passive, code{1, 1, 1}, rdmap.OpWrite},
		{"Send, no receive", func(a, _ *end) {
			a.do(verbs.SendWR{Opcode: verbs.WRSend, SGL: a.sgl(source, 64)})
		}, passive, code{1, 2, 2}, rdmap.OpSend},
		{"Send, too long", func(a, b *end) {
			b.recv(63)
			a.do(verbs.SendWR{Opcode: verbs.WRSend, SGL: a.sgl(source, 64)})
		}, passive, code{1, 2, 5}, rdmap.OpSend},
		{"Immediate Data, no receive", func(a, _ *end) {
			a.do(verbs.SendWR{Opcode: verbs.WRImmData})
		}, passive, code{1, 2, 2}, rdmap.OpImmediate},
		{"local key", func(a, _ *end) {
			sgl := a.sgl(source, 64)
			sgl[0].LKey += bogus
			require.Equal(a.t, verbs.WCLocProtErr, a.do(verbs.SendWR{Opcode: verbs.WRSend, SGL: sgl}).Status)
		}, active, code{0, 0, 0}, rdmap.OpTerminate},
	}
	s := newScript(t)
	for _, c := range cases {
		t.Run("run "+c.name, func(t *testing.T) {
			a, b, _ := pair(t, usiwtest.PairConfig{TCP: overTCP, A: usiw.Config{Tap: s}})
			c.run(a, b)
			for _, e := range []*end{a, b} {
				<-e.ID.Done()
				var why *verbs.TerminateError
				require.ErrorAs(t, e.QP.Err(), &why)
				require.Equal(t, c.code, code{uint64(why.Layer), uint64(why.Type), uint64(why.Code)})
			}
			disconnect(t, a, b)
		})
	}
	all, v := judge(t, s.done(t))
	require.Equal(t, 0, v.bad)
	// The field for the type or the code depends on the layer.
	either := func(t *testing.T, r row, names ...string) uint64 {
		for _, n := range names {
			if _, ok := r["iwarp_rdma."+n]; ok {
				return r.number(t, "iwarp_rdma."+n)
			}
		}
		require.Fail(t, "no field", "%v", names)
		return 0
	}
	for i, c := range cases {
		t.Run("judge "+c.name, func(t *testing.T) {
			all := stream(all, i)
			req, rep := frames(t, all)
			// The last messages of both ends. An immediate answer may be recorded before its
			// request.
			var last [2]row
			for _, o := range all {
				for i, f := range []row{req, rep} {
					if o["tcp.srcport"] == f["tcp.srcport"] {
						last[i] = o
					}
				}
			}
			r, offender := last[c.from], last[1-c.from]
			require.Equal(t, rdmap.OpTerminate, rdmap.Opcode(r.number(t, "iwarp_rdma.opcode")))
			require.EqualValues(t, ddp.QNTerminate, r.number(t, "iwarp_ddp.qn"))
			require.EqualValues(t, 1, r.number(t, "iwarp_ddp.msn"))
			require.Equal(t, c.code, code{r.number(t, "iwarp_rdma.term_layer"),
				either(t, r, "term_etype_rdma", "term_etype_ddp"),
				either(t, r, "term_errcode_rdma", "term_errcode_ddp_tagged", "term_errcode_ddp_untagged",
					"term_errcode")})
			bits := [3]string{r["iwarp_rdma.term_hdrct_m"], r["iwarp_rdma.hdrct_d"], r["iwarp_rdma.hdrct_r"]}
			switch c.quotes {
			case rdmap.OpTerminate:
				require.Equal(t, [3]string{"0", "0", "0"}, bits)
				return
			case rdmap.OpReadRequest:
				require.Equal(t, [3]string{"1", "1", "1"}, bits)
			default:
				require.Equal(t, [3]string{"1", "1", "0"}, bits)
			}
			// The quoted message is the last one of the other end. If the error type is 1, tshark
			// mistakes any quoted header for a tagged one, so the whole header is searched for in
			// the bytes.
			require.Equal(t, c.quotes, rdmap.Opcode(offender.number(t, "iwarp_rdma.opcode")))
			fpdu := offender.bytes(t, "tcp.payload")
			length := int(binary.BigEndian.Uint16(fpdu))
			require.Equal(t, binary.BigEndian.AppendUint16(nil, uint16(length)),
				r.bytes(t, "iwarp_rdma.term_ddp_seg_len"))
			header := ddp.UntaggedLen
			if c.quotes == rdmap.OpWrite {
				header = ddp.TaggedLen
			}
			if c.quotes == rdmap.OpReadRequest {
				header += rdmap.ReadRequestLen
			}
			quoted := r.bytes(t, "tcp.payload")[mpa.LengthLen+ddp.UntaggedLen+rdmap.TerminateLen+2:]
			require.Equal(t, fpdu[mpa.LengthLen:mpa.LengthLen+header], quoted[:header])
			require.Equal(t, quoted[:ddp.TaggedLen], r.bytes(t, "iwarp_rdma.term_ddp_h")[:ddp.TaggedLen])
		})
	}
}
