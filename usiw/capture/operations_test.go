// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// talk runs operations between two ends and records what tshark must report for them.
type talk struct {
	t    *testing.T
	ends [2]*end
	sent [2][]message
	msn  [2][4]uint64 // the last number on each queue
	mtu  int          // 0 = every message is one segment
}

func newTalk(t *testing.T, a, b *end) *talk {
	w := &talk{t: t, ends: [2]*end{a, b}}
	// The Write that opens the connection.
	w.tagged(0, rdmap.OpWrite, 1, 0, []byte{})
	return w
}

// span returns how many of the remaining bytes go into a segment after a header.
func (w *talk) span(left, header int) int {
	if full := mpa.MULPDU(w.mtu, false) - header; w.mtu != 0 && left > full {
		return full &^ 7
	}
	return left
}

// tagged expects a tagged message.
func (w *talk) tagged(from int, op rdmap.Opcode, stag uint32, to uint64, data []byte) {
	for off := 0; ; {
		n := w.span(len(data)-off, ddp.TaggedLen)
		last := uint64(0)
		if off+n == len(data) {
			last = 1
		}
		w.sent[from] = append(w.sent[from],
			message{op, map[string]uint64{"iwarp_ddp.tagged_flag": 1, "iwarp_ddp.last_flag": last,
				"iwarp_ddp.stag": uint64(stag), "iwarp_ddp.tagged_offset": to + uint64(off)},
				slices.Clone(data[off : off+n])})
		if off += n; last == 1 {
			return
		}
	}
}

// untagged expects an untagged message with the given additional fields.
func (w *talk) untagged(from int, op rdmap.Opcode, qn int, fields map[string]uint64, data []byte) {
	w.msn[from][qn]++
	for off := 0; ; {
		n := w.span(len(data)-off, ddp.UntaggedLen)
		m := message{op, map[string]uint64{"iwarp_ddp.tagged_flag": 0, "iwarp_ddp.last_flag": 0,
			"iwarp_ddp.qn": uint64(qn), "iwarp_ddp.msn": w.msn[from][qn], "iwarp_ddp.mo": uint64(off)}, nil}
		maps.Copy(m.fields, fields)
		if data != nil {
			m.payload = slices.Clone(data[off : off+n])
		}
		if off += n; off == len(data) {
			m.fields["iwarp_ddp.last_flag"] = 1
			w.sent[from] = append(w.sent[from], m)
			return
		}
		w.sent[from] = append(w.sent[from], m)
	}
}

// run posts a request, waits for it and requires it to succeed.
func (w *talk) run(from int, wr verbs.SendWR) {
	w.t.Helper()
	require.Equal(w.t, verbs.WCSuccess, w.ends[from].do(wr).Status, "%v", wr.Opcode)
}

// send sends n bytes; inv is the key to invalidate, or 0.
func (w *talk) send(from, n int, inv uint32, flags verbs.SendFlags) {
	w.t.Helper()
	a, b := w.ends[from], w.ends[1-from]
	b.recv(n)
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: flags, InvalidateRKey: inv, SGL: a.sgl(source, n)}
	op, fields := rdmap.OpSend, map[string]uint64{}
	if inv != 0 {
		wr.Opcode, op = verbs.WRSendWithInv, rdmap.OpSendInv
		fields["iwarp_rdma.inval_stag"] = uint64(inv)
	}
	if flags&verbs.SendSolicited != 0 {
		op += rdmap.OpSendSE - rdmap.OpSend
	}
	w.untagged(from, op, ddp.QNSend, fields, a.fill(n))
	w.run(from, wr)
	wc := b.next(b.RecvCQ)
	require.Equal(w.t, verbs.WCSuccess, wc.Status)
	require.Equal(w.t, n, int(wc.ByteLen))
}

// window binds a window at an end and returns its key.
func (w *talk) window(at int) uint32 {
	w.t.Helper()
	e := w.ends[at]
	mw, err := e.PD.AllocMW(verbs.MWType2)
	require.NoError(w.t, err)
	key := mw.NextRKey()
	w.run(at, verbs.SendWR{Opcode: verbs.WRBindMW, RKey: key,
		Bind: &verbs.MWBind{MW: mw, MR: e.MR, Addr: e.MR.Addr(), Length: 64, Access: verbs.AccessRemoteRead}})
	return key
}

// write writes n bytes, with an immediate if wr has one.
func (w *talk) write(from, n int, wr verbs.SendWR) {
	w.t.Helper()
	a, b := w.ends[from], w.ends[1-from]
	wr.SGL, wr.RemoteAddr, wr.RKey = a.sgl(source, n), b.addr(target), b.MR.RKey()
	w.tagged(from, rdmap.OpWrite, wr.RKey, wr.RemoteAddr, a.fill(n))
	if wr.Opcode == verbs.WRRDMAWriteWithImm {
		w.immediate(from, wr.Flags, uint64(wr.Imm)<<32)
		b.recv(0)
	}
	w.run(from, wr)
	if wr.Opcode == verbs.WRRDMAWriteWithImm {
		wc := b.next(b.RecvCQ)
		require.Equal(w.t, [2]any{verbs.WCRecvRDMAWithImm, wr.Imm}, [2]any{wc.Opcode, wc.Imm})
	}
}

// immediate expects Immediate Data.
func (w *talk) immediate(from int, flags verbs.SendFlags, v uint64) {
	op := rdmap.OpImmediate
	if flags&verbs.SendSolicited != 0 {
		op = rdmap.OpImmediateSE
	}
	w.untagged(from, op, ddp.QNSend, map[string]uint64{"iwarp_mpa.ulpdulength": 26},
		binary.BigEndian.AppendUint64(nil, v))
}

// imm64 sends Immediate Data of 8 bytes.
func (w *talk) imm64(from int, wr verbs.SendWR) {
	w.t.Helper()
	b := w.ends[1-from]
	b.recv(0)
	w.immediate(from, wr.Flags, wr.Imm64)
	w.run(from, wr)
	wc := b.next(b.RecvCQ)
	require.Equal(w.t, [2]any{verbs.WCRecvImmData, wr.Imm64}, [2]any{wc.Opcode, wc.Imm64})
}

// read reads n bytes.
func (w *talk) read(from, n int) {
	w.t.Helper()
	a, b := w.ends[from], w.ends[1-from]
	wr := verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: a.sgl(sink, n), RemoteAddr: b.addr(source), RKey: b.MR.RKey()}
	var to verbs.SGE
	if n > 0 {
		to = wr.SGL[0]
	}
	w.untagged(from, rdmap.OpReadRequest, ddp.QNReadRequest, map[string]uint64{
		"iwarp_rdma.sinkstag": uint64(to.LKey), "iwarp_rdma.sinkto": to.Addr, "iwarp_rdma.rdmardsz": uint64(n),
		"iwarp_rdma.srcstag": uint64(wr.RKey), "iwarp_rdma.srcto": wr.RemoteAddr}, nil)
	w.tagged(1-from, rdmap.OpReadResponse, to.LKey, to.Addr, b.fill(n))
	w.run(from, wr)
	require.True(w.t, bytes.Equal(b.bytes(source, n), a.bytes(sink, n)))
}

// atomicField is the prefix of the names of atomic fields.
const atomicField = "iwarp_rdma.atomic."

// atomic performs an atomic on a word that holds orig.
func (w *talk) atomic(from int, orig uint64, wr verbs.SendWR, opcode uint64, fields map[string]uint64) {
	w.t.Helper()
	a, b := w.ends[from], w.ends[1-from]
	b.setNumber(word, orig)
	wr.SGL, wr.RemoteAddr, wr.RKey = a.sgl(word+8, 8), b.addr(word), b.MR.RKey()
	all := map[string]uint64{
		atomicField + "reserved":             0,
		atomicField + "opcode":               opcode,
		atomicField + "remote_stag":          uint64(wr.RKey),
		atomicField + "remote_tagged_offset": wr.RemoteAddr,
		// The requester chooses the identifier. This implementation uses the message number.
		atomicField + "request_identifier": w.msn[from][ddp.QNReadRequest] + 1,
	}
	maps.Copy(all, fields)
	w.untagged(from, rdmap.OpAtomicRequest, ddp.QNReadRequest, all, nil)
	w.untagged(1-from, rdmap.OpAtomicResponse, ddp.QNAtomicResponse, map[string]uint64{
		atomicField + "original_request_identifier": all[atomicField+"request_identifier"],
		atomicField + "original_remote_data_value":  orig}, nil)
	w.run(from, wr)
	require.Equal(w.t, orig, a.number(word+8))
}

const ones = ^uint64(0)

// fetchAdd performs a FetchAdd, masked unless it can be plain and plain is true.
func (w *talk) fetchAdd(from int, orig, add, mask uint64, plain bool) {
	w.t.Helper()
	wr := ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, add, mask)
	if plain {
		wr = ext.FetchAddWR(verbs.Remote{Length: 8}, add)
	}
	// Fields that a FetchAdd does not use are sent as zero and all ones (RFC 7306 section 5.2.1).
	w.atomic(from, orig, wr, uint64(rdmap.AtomicFetchAdd), map[string]uint64{
		atomicField + "add_data": add, atomicField + "add_mask": mask,
		atomicField + "compare_data": 0, atomicField + "compare_mask": ones})
	require.Equal(w.t, ext.MaskedFetchAdd(orig, add, mask), w.ends[1-from].number(word))
}

// cmpSwap performs a CmpSwap.
func (w *talk) cmpSwap(from int, orig, compare, compareMask, swap, swapMask uint64, plain bool) {
	w.t.Helper()
	wr := ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, compare, compareMask, swap, swapMask)
	if plain {
		wr = ext.CmpSwapWR(verbs.Remote{Length: 8}, compare, swap)
	}
	w.atomic(from, orig, wr, uint64(rdmap.AtomicCmpSwap), map[string]uint64{
		atomicField + "swap_data": swap, atomicField + "swap_mask": swapMask,
		atomicField + "compare_data": compare, atomicField + "compare_mask": compareMask})
	require.Equal(w.t, ext.MaskedCmpSwap(orig, compare, compareMask, swap, swapMask), w.ends[1-from].number(word))
}

// everything runs every kind of operation in both directions.
func (w *talk) everything() {
	w.t.Helper()
	se := verbs.SendSolicited
	for from := range 2 {
		w.send(from, 50, 0, 0)
		w.send(from, 51, 0, se)
		w.send(from, 52, w.window(1-from), 0)
		w.send(from, 53, w.window(1-from), se)
		w.send(from, 0, 0, 0)
		w.send(from, 0, w.window(1-from), se)
		w.write(from, 100, verbs.SendWR{Opcode: verbs.WRRDMAWrite})
		w.write(from, 0, verbs.SendWR{Opcode: verbs.WRRDMAWrite})
		w.write(from, 101, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 0xDEADBEEF})
		w.write(from, 0, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 7, Flags: se})
		w.imm64(from, ext.ImmDataWR(0x1122334455667788))
		w.imm64(from, ext.ImmDataSEWR(0x8877665544332211))
		w.read(from, 300)
		w.fetchAdd(from, 41, 1, 0, true)
		w.read(from, 0)
		w.fetchAdd(from, 0xFF01807F00FFFE10, 0x01FF800100FF02F0, 0x8080808080808080, false)
		w.cmpSwap(from, 5, 5, ones, 9, ones, true)
		w.cmpSwap(from, 6, 5, ones, 9, ones, true)
		w.cmpSwap(from, 0x11223344AABBCCDD, 0xAABBCCDD, 0xFFFFFFFF, 0xDEADBEEF00000000, 0xFFFFFFFF00000000, false)
		w.cmpSwap(from, 1<<63|0x1234, 0, 1<<63, 1<<63, 1<<63, false)
		w.read(from, 9)
	}
}

// check compares one connection of a file with the messages that were sent.
func (w *talk) check(t *testing.T, all []row, markers bool) {
	t.Helper()
	req, rep := frames(t, all)
	for i, r := range []row{req, rep} {
		require.Equal(t, []string{"0", "1"}[i], r["iwarp_mpa.crc_flag"]) // the passive side asks for it
		require.Equal(t, "0", r["iwarp_mpa.rej_flag"])
		want := "0"
		if markers {
			want = "1"
		}
		require.Equal(t, want, r["iwarp_mpa.marker_flag"])
		require.Equal(t, "2", r["iwarp_mpa.rev"])
		require.Equal(t, []string{"question", "answer"}[i],
			string(r.bytes(t, "iwarp_mpa.privatedata")[mpa.EnhancedLen:]))
		expect(t, all, r["tcp.srcport"], markers, w.sent[i])
	}
}

// TestOperations uses tshark to check captures of every kind of operation: recorded at either side
// and at both; over IPv4, IPv6 and an in-memory network; with and without markers; in one segment
// and in several. All are in one file.
func TestOperations(t *testing.T) {
	const v4, v6 = overTCP, "[::1]:0"
	const several = 1500 // MTU
	cases := []struct {
		name            string
		active, passive bool // where the taps are
		address         string
		cfg             usiw.Config
	}{
		{"active side", true, false, v4, usiw.Config{}},
		{"passive side", false, true, v4, usiw.Config{}},
		{"both sides", true, true, v4, usiw.Config{}},
		{"one NIC", true, true, v4, usiw.Config{}},
		{"IPv6, active side", true, false, v6, usiw.Config{}},
		{"IPv6, both sides", true, true, v6, usiw.Config{}},
		{"markers, active side", true, false, v4, usiw.Config{Markers: usiw.On}},
		{"markers, both sides", true, true, v4, usiw.Config{Markers: usiw.On}},
		{"no network, passive side", false, true, "", usiw.Config{}},
		{"no network, both sides", true, true, "", usiw.Config{}},
		{"segments, active side", true, false, v4, usiw.Config{MTU: several}},
		{"segments, both sides", true, true, v6, usiw.Config{MTU: several}},
	}
	s := newScript(t)
	talks := make([]*talk, len(cases))
	good := 0
	for i, c := range cases {
		t.Run("run "+c.name, func(t *testing.T) {
			acfg, bcfg := c.cfg, c.cfg
			if c.active {
				acfg.Tap = s
			}
			if c.passive {
				bcfg.Tap = s
			}
			a, b, _ := pair(t, usiwtest.PairConfig{TCP: c.address, OneNIC: c.name == "one NIC", A: acfg, B: bcfg})
			w := newTalk(t, a, b)
			if w.mtu = c.cfg.MTU; w.mtu == 0 {
				w.everything()
			} else {
				w.segments()
			}
			disconnect(t, a, b)
			good += len(w.sent[0]) + len(w.sent[1])
			talks[i] = w
		})
	}
	all, v := judge(t, s.done(t))
	require.Equal(t, verdict{good: good}, v)
	for i, c := range cases {
		t.Run("judge "+c.name, func(t *testing.T) {
			w, all := talks[i], stream(all, i)
			w.check(t, all, c.cfg.Markers == usiw.On)
			if c.address != "" {
				req, rep := frames(t, all)
				require.True(t, strings.HasSuffix(w.ends[0].ID.LocalAddr().String(), ":"+req["tcp.srcport"]))
				require.True(t, strings.HasSuffix(w.ends[1].ID.LocalAddr().String(), ":"+rep["tcp.srcport"]))
			}
			var lengths []uint64
			for _, r := range all {
				if r["iwarp_rdma.send.reassembled.length"] != "" {
					lengths = append(lengths, r.number(t, "iwarp_rdma.send.reassembled.length"))
				}
			}
			if c.cfg.MTU == several {
				require.Equal(t, []uint64{long, long}, lengths, "the Sends that tshark has put together")
			} else {
				require.Empty(t, lengths)
			}
		})
	}
}

// long is the length of messages of several FPDUs.
const long = 20001

// segments runs operations of that length in both directions.
func (w *talk) segments() {
	w.t.Helper()
	for from := range 2 {
		w.send(from, long, 0, 0)
		w.write(from, long, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 1})
		w.write(from, long, verbs.SendWR{Opcode: verbs.WRRDMAWrite})
		w.read(from, long) // once it is answered, everything has arrived
	}
}

// TestBulk moves as much as the sockets hold at once, both ways, so that streams are cut at
// arbitrary points.
func TestBulk(t *testing.T) {
	const n, rounds = 256 << 10, 8
	s := newScript(t)
	a, b, _ := pair(t, usiwtest.PairConfig{TCP: overTCP, A: usiw.Config{Tap: s}})
	a.fill(n)
	b.fill(n)
	var wrs [2][]verbs.SendWR
	for i, e := range []*end{a, b} {
		peer := []*end{b, a}[i]
		for range rounds / 2 {
			wrs[i] = append(wrs[i],
				verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: e.sgl(source, n), RemoteAddr: peer.addr(target),
					RKey: peer.MR.RKey()},
				verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: e.sgl(sink, n), RemoteAddr: peer.addr(source),
					RKey: peer.MR.RKey()})
		}
	}
	for i, e := range []*end{a, b} {
		last := &wrs[i][rounds-1]
		last.Flags = verbs.SendSignaled
		_, err := e.QP.PostSend(wrs[i])
		require.NoError(t, err)
	}
	for _, e := range []*end{a, b} {
		require.Equal(t, verbs.WCSuccess, e.next(e.SendCQ).Status)
	}
	disconnect(t, a, b)
	all, v := judge(t, s.done(t))
	moved := make(map[string]uint64)
	for _, r := range all {
		if op := r["iwarp_rdma.opcode"]; op == "0x00" || op == "0x02" {
			moved[r["tcp.srcport"]+" "+op] += r.number(t, "iwarp_mpa.ulpdulength") - ddp.TaggedLen
		}
	}
	require.Len(t, moved, 4)
	for what, bytes := range moved {
		require.EqualValues(t, rounds/2*n, bytes, what)
	}
	require.Equal(t, verdict{good: len(all) - 2}, v)
}

// TestNoCRC records a connection without CRCs: tshark then checks none.
func TestNoCRC(t *testing.T) {
	s := newScript(t)
	a, b, _ := pair(t, usiwtest.PairConfig{TCP: overTCP, A: usiw.Config{Tap: s, CRC: usiw.Off},
		B: usiw.Config{CRC: usiw.Off}})
	w := newTalk(t, a, b)
	w.send(0, 10, 0, 0)
	disconnect(t, a, b)
	all, v := judge(t, s.done(t))
	require.Equal(t, verdict{}, v)
	req, _ := frames(t, all)
	expect(t, all, req["tcp.srcport"], false, w.sent[0])
	for _, r := range all[2:] {
		require.Contains(t, r, "iwarp_mpa.crc")
		require.NotContains(t, r, "iwarp_mpa.crc_check")
	}
}

// TestDamage corrupts a byte in transit. The capture at the receiver shows the bad CRC and the
// Terminate.
func TestDamage(t *testing.T) {
	s := newScript(t)
	a, b, link := pair(t, usiwtest.PairConfig{B: usiw.Config{Tap: s}})
	w := newTalk(t, a, b)
	w.send(0, 10, 0, 0)
	link.ToListener.Corrupt(link.ToListener.Written()+mpa.LengthLen+ddp.UntaggedLen+15, 0x10)
	a.do(verbs.SendWR{Opcode: verbs.WRSend, SGL: a.sgl(source, 20)})
	<-b.ID.Done()
	disconnect(t, a, b)
	all, v := judge(t, s.done(t))
	require.Equal(t, verdict{good: 3, bad: 1}, v,
		"the opening Write, a Send and the Terminate; the Send that was damaged")
	terminate := all[len(all)-1]
	require.Equal(t, rdmap.OpTerminate, rdmap.Opcode(terminate.number(t, "iwarp_rdma.opcode")))
	require.EqualValues(t, rdmap.LayerMPA, terminate.number(t, "iwarp_rdma.term_layer"))
	require.EqualValues(t, mpa.ErrCodeCRC, terminate.number(t, "iwarp_rdma.term_errcode_llp"))
}

// TestRejected records a rejected connection, and a later one in the same file.
func TestRejected(t *testing.T) {
	s := newScript(t)
	a, b, _ := pair(t, usiwtest.PairConfig{TCP: overTCP, A: usiw.Config{Tap: s}, Before: func(p *usiwtest.Pair) error {
		reject(t, p, "not today")
		return nil
	}})
	w := newTalk(t, a, b)
	w.send(1, 10, 0, 0)
	disconnect(t, a, b)
	all, _ := judge(t, s.done(t))
	req, rep := frames(t, stream(all, 0))
	require.Equal(t, "0", req["iwarp_mpa.rej_flag"])
	require.Equal(t, "1", rep["iwarp_mpa.rej_flag"])
	require.True(t, strings.HasSuffix(string(rep.bytes(t, "iwarp_mpa.privatedata")), "not today"))
	_, rep = frames(t, stream(all, 1))
	require.Equal(t, "0", rep["iwarp_mpa.rej_flag"])
	expect(t, all, rep["tcp.srcport"], false, w.sent[1])
}

// TestPortsUsedAgainForTshark has several connections between the same ports. tshark decodes the
// FPDUs of all of them, but mistakes the frames of the later ones for FPDUs.
func TestPortsUsedAgainForTshark(t *testing.T) {
	s := newScript(t)
	for i := range 3 {
		s.tap(here, there, true, request(t))
		s.tap(here, there, false, reply(t))
		for k := range 3 {
			s.tap(here, there, true, send(uint32(k+1), []byte(fmt.Sprint("connection ", i))))
		}
		s.tap(here, there, false, send(1, nil)[:7]) // it ends in the middle of an FPDU
	}
	file := s.done(t)
	follow(t, readFile(t, file))
	good := make(map[string]int)
	for _, r := range rows(t, file) {
		if _, ok := r["iwarp_mpa.crc_check"]; ok {
			good[r["tcp.stream"]]++
		}
	}
	require.Equal(t, map[string]int{"0": 3, "1": 3, "2": 3}, good)
}

// TestNames has tshark show the names of synthetic addresses.
func TestNames(t *testing.T) {
	var file bytes.Buffer
	w, err := capture.New(&file, capture.Config{Name: "usiw3", Comment: "a comment"})
	require.NoError(t, err)
	w.Packet(&usiw.Packet{Time: start, Local: namedAddr("left"), Remote: namedAddr("right"), Out: true,
		Data: [][]byte{request(t)}})
	require.NoError(t, w.Close())
	text := tshark(t, file.Bytes(), "-V")
	require.Contains(t, text, "[2001:db8::1]:49154 is memory left; [2001:db8::2]:49155 is memory right")
	require.Contains(t, text, "Interface name: usiw3")
}

// The ends of a connection.
const (
	active = iota
	passive
)
