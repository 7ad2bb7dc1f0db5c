// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestTerminateSent sends the NIC every message that it must refuse: the Terminate has the right
// codes and quotes the right headers, FIN follows, no memory is touched, the QP, the ID and the
// asynchronous event report the same reason, and another connection of the NIC continues.
func TestTerminateSent(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	_, other := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	for _, c := range faultCases() {
		t.Run(c.name, func(t *testing.T) {
			v := newFaultEnv(n.as(t), c.opt)
			v.recv(c.recv...)
			all := c.send(v)
			fault := all[len(all)-1]
			v.p.send(all...)
			v.p.terminate(c.want.layer, c.want.typ, c.want.code, c.want.quote, fault)
			v.p.close()
			want := terminated(c.want.layer, c.want.typ, c.want.code, false)
			v.ended(want)
			ev := v.event()
			require.ErrorIs(t, ev.Err, want)
			require.Equal(t, faultEvent(c.want), ev.Type)
			for k := range c.recv {
				status := verbs.WCWRFlushErr
				if c.status != nil {
					status = c.status[k]
				}
				wc := v.received()
				require.Equal(t, status, wc.Status)
				require.EqualValues(t, k+1, wc.ID)
			}
			v.idle(v.rcq)
			for range v.qp.Cap().MaxSendWR { // outstanding requests are flushed
				var wcs [1]verbs.WC
				if k, err := v.scq.Poll(wcs[:]); k == 0 {
					require.NoError(t, err)
					break
				}
				require.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
			}
			v.intact()
		})
		other.alive(alive)
	}
}

// TestTerminateBeyondIRD sends more requests than the announced IRD allows while no response can be
// sent. The NIC announces a power of two, because some peers round the number up. A message that
// has begun is finished before the Terminate.
func TestTerminateBeyondIRD(t *testing.T) {
	for _, c := range []irdCase{
		{"1", false, 16, 1, false, 1, 1, false},
		{"2", false, 16, 2, false, 2, 2, true},
		{"3", false, 16, 3, false, 4, 4, false},
		{"4", false, 16, 4, false, 4, 4, true},
		{"3 of ours", false, 3, 16, false, 2, 2, false},
		{"not negotiated", false, 3, 0x3fff, false, 0x3fff, 3, false},
		{"revision 1", false, 3, 0, true, 0, 3, false},
		{"active, 3 of ours", true, 3, 2, false, 2, 2, true},
		{"active, 3 of theirs", true, 4, 3, false, 4, 4, false},
		{"active, less of theirs", true, 4, 1, false, 4, 4, false},
		{"active, all of theirs", true, 3, 3, false, 2, 3, false},
	} {
		t.Run(c.name, c.run)
	}
}

// irdCase is an agreed limit on the peer's requests in progress.
type irdCase struct {
	name      string
	active    bool // the NIC
	ours      int  // what the NIC can serve
	theirs    int  // what the peer announces that it will use
	revision1 bool
	announced uint32 // announced by the NIC
	most      uint32 // accepted by the NIC
	atomic    bool   // the kind that exceeds the limit
}

func (c irdCase) run(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	frame := rawRequest()
	frame.Enhanced.ORD = uint16(c.theirs)
	if c.revision1 {
		frame = mpa.Frame{Rev: mpa.Rev1, CRC: true}
	}
	var told mpa.Frame
	connect, o := n.passive, rawOpts{frame: &frame, param: depth(c.ours, 16), told: &told}
	if c.active {
		connect = n.active
	}
	e, p := connect(o)
	require.EqualValues(t, c.announced, told.Enhanced.IRD)
	_, other := n.passive(rawOpts{})
	const size = 8 << 20
	mr, err := n.pd.AllocMR(size, rawAccess)
	require.NoError(t, err)
	for msn := uint32(1); msn <= c.most; msn++ {
		p.send(rawRead(msn, fetch(mr, 0, size)))
	}
	fault := rawRead(c.most+1, fetch(mr, 0, 8))
	if c.atomic {
		fault = rawAtomic(c.most+1, add(mr, 0))
	}
	p.send(fault)
	for {
		u := p.read()
		if !ddp.IsTagged(u[0]) {
			p.wantTerminate(u, 1, 2, 2, quoteDDP, fault)
			break
		}
	}
	p.eof()
	p.close()
	e.ended(terminated(1, 2, 2, false))
	require.Equal(t, make([]byte, 8), mr.Bytes()[:8], "the atomic was not performed")
	other.alive(n.mr(64, 0x1000, rawAccess))
}

// TestTerminateArrives: a peer that is not reading yet keeps sending after its invalid message. The
// Terminate is not lost, and the NIC waits at most CloseTimeout for a peer that does not end its
// direction.
func TestTerminateArrives(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	n := newRawNIC(t, usiw.Config{CloseTimeout: timeout})
	v := newFaultEnv(n, rawOpts{})
	fault := rawSend(1, eight)
	more := rawFPDU(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), make([]byte, 60000)), true)
	v.p.write(append(rawFPDU(fault, true), bytes.Repeat(more, 64)...))
	v.p.terminate(1, 2, 2, quoteDDP, fault)
	v.ended(terminated(1, 2, 2, false))
	within(t, timeout+time.Second, "ID.Close", func() { require.NoError(t, v.id.Close()) })
	v.intact()
}

// TestTerminateBadReceive: a Send arrives for a receive with an invalid key.
func TestTerminateBadReceive(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, key := range []string{"unknown", "other domain", "not writable", "freed"} {
		t.Run(key, func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			s := v.sge(v.all)
			switch key {
			case "unknown":
				s.LKey ^= 0x12345600
			case "other domain":
				s.LKey = v.foreign.LKey()
			case "not writable":
				s.LKey = v.read.LKey()
			case "freed":
				s.LKey = v.gone
			}
			_, err := v.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{s}}, {ID: 2}})
			require.NoError(t, err)
			fault := rawSend(1, eight)
			v.p.send(fault)
			v.p.terminate(1, 0, 0, quoteDDP, fault)
			v.p.close()
			v.ended(terminated(1, 0, 0, false))
			require.Equal(t, verbs.WC{ID: 1, Status: verbs.WCLocProtErr, QPNum: v.qp.Num()}, v.received())
			require.Equal(t, verbs.WC{ID: 2, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.received())
			v.intact()
		})
	}
}

// TestTerminateWithoutOps disables operations: their messages are unexpected opcodes, as on an RNIC
// without RFC 7306.
func TestTerminateWithoutOps(t *testing.T) {
	n := newRawNIC(t, usiw.Config{Without: verbs.MakeOpSet(verbs.OpSendInv, verbs.OpWriteImm, verbs.OpImm64,
		verbs.OpFetchAdd, verbs.OpCmpSwap,
		verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap)})
	for _, op := range []rdmap.Opcode{rdmap.OpSendInv, rdmap.OpSendSEInv, rdmap.OpImmediate, rdmap.OpImmediateSE,
		rdmap.OpAtomicRequest, rdmap.OpAtomicResponse} {
		t.Run(op.String(), func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(8)
			fault := map[rdmap.Opcode][]byte{
				rdmap.OpSendInv: rawUntagged(op, 0, 1, nil), rdmap.OpSendSEInv: rawUntagged(op, 0, 1, nil),
				rdmap.OpImmediate: rawImm(1, 7), rdmap.OpImmediateSE: rawUntagged(op, 0, 1, eight),
				rdmap.OpAtomicRequest:  rawAtomic(1, add(v.all, 0)),
				rdmap.OpAtomicResponse: rawAtomicResponse(1, 1, 1)}[op]
			v.p.send(fault)
			v.p.terminate(0, 2, 6, quoteDDP, fault)
			v.p.close()
			v.ended(terminated(0, 2, 6, false))
			v.intact()
		})
	}
}

// TestTerminateLocal: a local error ends the connection. The peer receives all earlier messages,
// and a Terminate without headers in place of the message.
func TestTerminateLocal(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	_, other := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	for _, c := range []struct {
		name   string
		wr     func(v *faultEnv) verbs.SendWR
		status verbs.WCStatus
	}{
		{"Send, unknown key", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 0x10000, Length: 8, LKey: 1}}}
		}, verbs.WCLocProtErr},
		{"Write, key of another domain", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{v.sge(v.foreign)}}
		}, verbs.WCLocProtErr},
		{"Write with immediate, unknown key", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: []verbs.SGE{{Addr: 0x10000, Length: 8, LKey: 1}}}
		}, verbs.WCLocProtErr},
		{"Write with immediate, one byte past", func(v *faultEnv) verbs.SendWR {
			s := v.sge(v.all)
			s.Length++
			return verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: []verbs.SGE{s}}
		}, verbs.WCLocProtErr},
		{"Send with Invalidate, freed key", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRSendWithInv, SGL: []verbs.SGE{{Addr: 0x10000, Length: 8, LKey: v.gone}}}
		}, verbs.WCLocProtErr},
		{"Send with Invalidate, one byte before", func(v *faultEnv) verbs.SendWR {
			s := v.sge(v.all)
			s.Addr--
			return verbs.SendWR{Opcode: verbs.WRSendWithInv, SGL: []verbs.SGE{s}}
		}, verbs.WCLocProtErr},
		{"Read into memory without the right", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{v.sge(v.read)}}
		}, verbs.WCLocProtErr},
		{"invalidate an unknown key", func(v *faultEnv) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: v.gone}
		}, verbs.WCMWBindErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			wr := c.wr(v)
			wr.ID = 2
			v.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend}, wr, verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
			require.Equal(t, rawSend(1, nil), v.p.read())
			v.p.terminate(0, 0, 0, quoteNone, nil)
			v.p.close()
			for id, status := range []verbs.WCStatus{1: verbs.WCSuccess, 2: c.status, 3: verbs.WCWRFlushErr} {
				if id > 0 {
					wc := v.sent()
					require.EqualValues(t, id, wc.ID)
					require.Equal(t, status, wc.Status)
				}
			}
			v.intact()
			select {
			case <-v.id.Done():
			case <-soon(t).Done():
				require.FailNow(t, "the connection has not ended")
			}
			require.ErrorIs(t, v.qp.Err(), c.status)
		})
		other.alive(alive)
	}
}

// TestTerminateBehindAnswers sends requests and an invalid message in one write: the responses
// precede the Terminate.
func TestTerminateBehindAnswers(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for name, fault := range map[string][]byte{"message": rawSend(1, eight), "CRC": nil} {
		t.Run(name, func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			last := rawFPDU(fault, true)
			if fault == nil {
				last = rawFPDU(rawSend(1, eight), true)
				last[len(last)-1] ^= 1
			}
			var all []byte
			for _, u := range [][]byte{rawRead(1, fetch(v.all, 0, 8)), rawAtomic(2, add(v.all, 16)),
				rawRead(3, fetch(v.all, 8, 4))} {
				all = append(all, rawFPDU(u, true)...)
			}
			v.p.write(append(all, last...))
			require.Equal(t, rawTagged(rdmap.OpReadResponse, 1, 2, bytes.Repeat([]byte{0xa5}, 8)), v.p.read())
			require.Equal(t, rawAtomicResponse(1, 3, 0xa5a5a5a5a5a5a5a5), v.p.read())
			require.Equal(t, rawTagged(rdmap.OpReadResponse, 1, 2, bytes.Repeat([]byte{0xa5}, 4)), v.p.read())
			if fault == nil {
				v.p.terminate(2, 0, 2, quoteNone, nil)
			} else {
				v.p.terminate(1, 2, 2, quoteDDP, fault)
			}
			v.p.close()
		})
	}
}

// TestTerminateOverflow: a CQ overflow ends the connections of its QPs, and their peers learn that
// the shutdown is not orderly (RFC 5040 section 7.1, case 1).
func TestTerminateOverflow(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	rcq, err := n.ctx.CreateCQ(verbs.CQConfig{CQE: 1})
	require.NoError(t, err)
	e, p := n.passive(rawOpts{rcq: rcq, before: func(e *rawEnd) { e.recv(0, 0) }})
	_, other := n.passive(rawOpts{})
	p.send(rawSend(1, nil), rawSend(2, nil))
	p.terminate(0, 0, 0, quoteNone, nil)
	p.close()
	e.ended(verbs.ErrCQOverflow)
	require.ErrorIs(t, e.id.Err(), terminated(0, 0, 0, false))
	ev, err := n.ctx.WaitEvent(soon(t))
	require.NoError(t, err)
	require.Equal(t, verbs.EventCQErr, ev.Type)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.ctx.WaitEvent(over)
	require.ErrorIs(t, err, context.Canceled, "the QP has no event of its own")
	other.alive(n.mr(64, 0x1000, rawAccess))
}

// TestTerminateIdle: the peer of a connection that has been idle for too long also learns that the
// shutdown is not orderly.
func TestTerminateIdle(t *testing.T) {
	t.Parallel()
	e, p := newRawNIC(t, usiw.Config{IdleTimeout: time.Second}).passive(rawOpts{})
	p.terminate(0, 0, 0, quoteNone, nil)
	p.close()
	e.ended(syscall.ETIMEDOUT)
	require.ErrorIs(t, e.id.Err(), terminated(0, 0, 0, false))
	require.Equal(t, verbs.EventQPFatal, e.event().Type)
}

// TestTerminateLocalBehind: a request that fails is posted after others: these are still sent and
// complete, although the peer is slow.
func TestTerminateLocalBehind(t *testing.T) {
	e, p := newRawNIC(t, usiw.Config{}).passive(rawOpts{})
	mr := e.large(1 << 20)
	const count = 16
	require.Equal(t, count, e.flood(mr, count))
	e.post(verbs.SendWR{ID: count, Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}}},
		verbs.SendWR{ID: count + 1, Opcode: verbs.WRSend})
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, verbs.QPStateRTS, e.qp.State(), "the turn of the bad request has come too early")
	for range count {
		for got := 0; got < mr.Len(); {
			got += len(p.read()) - ddp.UntaggedLen
		}
	}
	p.terminate(0, 0, 0, quoteNone, nil)
	p.close()
	for id := range count {
		require.Equal(t, verbs.WC{ID: uint64(id), QPNum: e.qp.Num()}, e.sent())
	}
	require.Equal(t, verbs.WC{ID: count, Status: verbs.WCLocProtErr, QPNum: e.qp.Num()}, e.sent())
	require.Equal(t, verbs.WC{ID: count + 1, Status: verbs.WCWRFlushErr, QPNum: e.qp.Num()}, e.sent())
}

// TestTerminateImmediate: a Terminate about Immediate Data fails that request, if it has not
// completed, and no other.
func TestTerminateImmediate(t *testing.T) {
	const flush, invalid = verbs.WCWRFlushErr, verbs.WCRemInvReqErr
	for _, c := range []struct {
		name   string
		quoted int    // which request
		msn    uint32 // replaces its own, if not 0
		status [4]verbs.WCStatus
	}{
		{"plain", 1, 0, [4]verbs.WCStatus{flush, invalid, flush, flush}},
		{"with Solicited Event", 2, 0, [4]verbs.WCStatus{flush, flush, invalid, flush}},
		{"MSN that was not used", 1, 77, [4]verbs.WCStatus{flush, flush, flush, flush}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, p := newRawNIC(t, usiw.Config{}).passive(rawOpts{})
			sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
			var sent [4][]byte
			for i, wr := range []verbs.SendWR{{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{e.sge(sink)}, RKey: 3},
				{Opcode: verbs.WRImmData}, {Opcode: verbs.WRImmData, Flags: verbs.SendSolicited},
				{Opcode: verbs.WRSend}} {
				wr.ID = uint64(i)
				e.post(wr)
				sent[i] = p.read()
			}
			u := sent[c.quoted]
			if c.msn != 0 {
				binary.BigEndian.PutUint32(u[10:], c.msn)
			}
			p.send(rawTerminate(rdmap.Terminate{Layer: 1, Type: 2, Code: 2, SegLenValid: true, SegLen: uint16(len(u)),
				DDPHeader: u[:ddp.UntaggedLen]}))
			e.ended(terminated(1, 2, 2, true))
			for i, status := range c.status {
				require.Equal(t, verbs.WC{ID: uint64(i), Status: status, QPNum: e.qp.Num()}, e.sent())
			}
		})
	}
	t.Run("completed", func(t *testing.T) {
		e, p := newRawNIC(t, usiw.Config{}).passive(rawOpts{})
		e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRImmData})
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCImmData, QPNum: e.qp.Num()}, e.sent())
		u := p.read()
		e.post(verbs.SendWR{ID: 2, Opcode: verbs.WRRDMARead,
			SGL: []verbs.SGE{e.sge(e.mr(8, 0x100, verbs.AccessLocalWrite))}, RKey: 3})
		p.read()
		p.send(rawTerminate(rdmap.Terminate{Layer: 1, Type: 2, Code: 2, SegLenValid: true, SegLen: uint16(len(u)),
			DDPHeader: u[:ddp.UntaggedLen]}))
		e.ended(terminated(1, 2, 2, true))
		require.Equal(t, verbs.WC{ID: 2, Status: flush, QPNum: e.qp.Num()}, e.sent())
	})
}

// TestWriteTooLong: a Write, in any number of segments, must be shorter than 2^32 bytes.
func TestWriteTooLong(t *testing.T) {
	for _, c := range []struct {
		last int
		long bool
	}{{7, false}, {8, true}} {
		t.Run(fmt.Sprint(c.last), func(t *testing.T) {
			n := newRawNIC(t, usiw.Config{})
			e, p := n.passive(rawOpts{})
			mr := e.mr(16, 0x100, rawAccess)
			e.recv(8)
			segment := func(last bool, size int) []byte {
				return rawTaggedSegment(rdmap.OpWrite, ddp.Tagged{Last: last, STag: mr.RKey(), TO: 0x100},
					pattern(size, 1))
			}
			p.send(segment(false, 8))
			word, err := mr.Word(0)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return word.Load() == binary.NativeEndian.Uint64(pattern(8, 1)) },
				rawWait, time.Millisecond)
			n.nic.Written(e.qp.Num(), 1<<32-8)
			p.send(segment(true, c.last))
			if c.long {
				e.ended(terminated(0, 2, 7, false))
				return
			}
			p.send(rawImm(1, 7))
			require.EqualValues(t, 1<<32-1, e.received().ByteLen)
		})
	}
}

// TestTerminateReceived sends Terminates to the NIC while a Read, an atomic and another Read are
// unanswered and a Send and a Write have been sent after them: the offending request fails, the
// others are flushed, and the reason is reported everywhere.
func TestTerminateReceived(t *testing.T) {
	const flush, access, invalid, operation = verbs.WCWRFlushErr, verbs.WCRemAccessErr, verbs.WCRemInvReqErr,
		verbs.WCRemOpErr
	quoteOf := func(u []byte, read bool) rdmap.Terminate {
		term := rdmap.Terminate{SegLenValid: true, SegLen: uint16(len(u)), DDPHeader: u}
		if read {
			term.RDMAPHeader = u[ddp.UntaggedLen:]
		}
		return term
	}
	cases := []struct {
		name             string
		layer, typ, code uint8
		quote            func(req [5][]byte) rdmap.Terminate
		status           [5]verbs.WCStatus // statuses of the Read, atomic, Read, Send and Write
		rfcOnly          bool
	}{
		{"Read, invalid key", 0, 1, 0, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[0], true) },
			[5]verbs.WCStatus{access, flush, flush, flush, flush}, false},
		{"Read, bounds, no Read Request header", 0, 1, 1,
			func(r [5][]byte) rdmap.Terminate { return quoteOf(r[0], false) },
			[5]verbs.WCStatus{access, flush, flush, flush, flush}, false},
		{"second Read, right", 0, 1, 2, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[2], true) },
			[5]verbs.WCStatus{flush, flush, access, flush, flush}, false},
		{"atomic, right", 0, 1, 2, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[1], false) },
			[5]verbs.WCStatus{flush, access, flush, flush, flush}, false},
		{"atomic, alignment", 0, 2, 7, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[1], false) },
			[5]verbs.WCStatus{flush, invalid, flush, flush, flush}, false},
		{"atomic, opcode", 0, 2, 6, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[1], false) },
			[5]verbs.WCStatus{flush, invalid, flush, flush, flush}, false},
		{"too many requests", 1, 2, 2, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[2], false) },
			[5]verbs.WCStatus{flush, flush, invalid, flush, flush}, false},
		{"opcode, nothing quoted", 0, 2, 6, nil, [5]verbs.WCStatus{invalid, flush, flush, flush, flush}, false},
		{"Write, bounds", 1, 1, 1, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[4], false) },
			[5]verbs.WCStatus{flush, flush, flush, flush, access}, false},
		{"Send, no receive", 1, 2, 2, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[3], false) },
			[5]verbs.WCStatus{flush, flush, flush, invalid, flush}, false},
		{"another Write", 1, 1, 0, func([5][]byte) rdmap.Terminate {
			return quoteOf(rawTagged(rdmap.OpWrite, 1, 2,
				eight), false)
		}, [5]verbs.WCStatus{flush, flush, flush, flush, flush}, false},
		{"CRC", 2, 0, 2, nil, [5]verbs.WCStatus{flush, flush, flush, flush, flush}, false},
		{"MSN that was not used", 0, 1, 0, func(r [5][]byte) rdmap.Terminate {
			return quoteOf(with(r[0], 13, 77),
				true)
		}, [5]verbs.WCStatus{flush, flush, flush, flush, flush}, false},
		{"local catastrophic", 0, 0, 0, nil, [5]verbs.WCStatus{flush, flush, flush, flush, flush}, true},
		{"unassigned", 7, 7, 0xee, nil, [5]verbs.WCStatus{flush, flush, flush, flush, flush}, true},
		{"unassigned, quoted", 0, 3, 0xee, func(r [5][]byte) rdmap.Terminate { return quoteOf(r[0], false) },
			[5]verbs.WCStatus{operation, flush, flush, flush, flush}, false},
	}
	n := newRawNIC(t, usiw.Config{})
	_, other := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	for _, c := range cases {
		for _, layout := range []string{"RFC 5040", "kernel siw"} {
			if c.rfcOnly && layout != "RFC 5040" {
				continue
			}
			t.Run(c.name+", "+layout, func(t *testing.T) {
				v := newFaultEnv(n.as(t), rawOpts{})
				v.recv(8)
				s, err := v.sink.SGE(0, 8)
				require.NoError(t, err)
				var req [5][]byte
				for i, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRRDMARead,
					verbs.WRSend, verbs.WRRDMAWrite} {
					v.post(verbs.SendWR{ID: uint64(i), Opcode: op, SGL: []verbs.SGE{s}, RKey: 5, RemoteAddr: 8})
					req[i] = v.p.read()
				}
				term := rdmap.Terminate{}
				if c.quote != nil {
					term = c.quote(req)
				}
				term.Layer, term.Type, term.Code = c.layer, c.typ, c.code
				u := rawTerminate(term)
				if layout != "RFC 5040" {
					u = swapped(u)
				}
				v.p.send(u)
				v.p.eof()
				v.p.close()
				want, text := terminated(c.layer, c.typ, c.code, true), rdmap.TerminateText(c.layer, c.typ, c.code)
				if layout != "RFC 5040" && c.quote == nil {
					// Nothing identifies the layout: the numbers follow the RFC, and the text also
					// gives siw's meaning.
					want, text = terminated(c.typ, c.layer, c.code, true), "; if the peer is siw of Linux: "+text
				}
				v.ended(want)
				ev := v.event()
				require.Equal(t, verbs.EventQPFatal, ev.Type)
				require.ErrorIs(t, ev.Err, want)
				var te *verbs.TerminateError
				require.ErrorAs(t, v.qp.Err(), &te)
				require.Contains(t, te.Text, text)
				if c.quote != nil {
					require.Equal(t, term.DDPHeader[:len(te.Header)], te.Header)
					require.NotEmpty(t, te.Header)
				} else {
					require.Empty(t, te.Header)
				}
				for i, status := range c.status {
					require.Equal(t, verbs.WC{ID: uint64(i), Status: status, QPNum: v.qp.Num()}, v.sent())
				}
				require.Equal(t, verbs.WC{ID: 1, Status: flush, QPNum: v.qp.Num()}, v.received())
				v.intact()
			})
			other.alive(alive)
		}
	}
}

// swapped converts a Terminate to the layout in which kernel siw sends it on little-endian hosts.
func swapped(u []byte) []byte {
	u = bytes.Clone(u)
	h := u[ddp.UntaggedLen:]
	h[0] = h[0]<<4 | h[0]>>4
	h[2] = h[2]>>7&1 | h[2]>>6&1<<1 | h[2]>>5&1<<2
	return u
}

// TestTerminateReceivedOdd sends data after a Terminate, and truncated Terminates.
func TestTerminateReceivedOdd(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	t.Run("kernel siw quotes the length as MSN", func(t *testing.T) {
		// Its Terminate for a Read has the number of bytes in place of the MSN; the Read Request
		// itself is correct.
		v := newFaultEnv(n.as(t), rawOpts{})
		var quoted []byte
		for id := range uint64(3) {
			s, err := v.sink.SGE(int(8*id), 2)
			require.NoError(t, err)
			v.post(verbs.SendWR{ID: id, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{s}, RKey: 5, RemoteAddr: 8})
			if u := v.p.read(); id == 2 {
				quoted = with(u, 10, 0, 0, 0, 2)
			}
		}
		v.p.send(swapped(rawTerminate(rdmap.Terminate{Layer: 0, Type: 1, Code: 0, SegLenValid: true,
			DDPHeader: quoted, RDMAPHeader: quoted[ddp.UntaggedLen:]})))
		v.p.eof()
		v.p.close()
		v.ended(terminated(0, 1, 0, true))
		for id, status := range []verbs.WCStatus{verbs.WCWRFlushErr, verbs.WCWRFlushErr, verbs.WCRemAccessErr} {
			require.Equal(t, verbs.WC{ID: uint64(id), Status: status, QPNum: v.qp.Num()}, v.sent())
		}
	})
	t.Run("messages behind it", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.recv(8)
		v.p.send(rawTerminate(rdmap.Terminate{Layer: 0, Type: 2, Code: 8}),
			rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), rawSend(1, eight),
			rawTerminate(rdmap.Terminate{Layer: 1, Type: 1}))
		v.p.gone()
		v.p.close()
		v.ended(terminated(0, 2, 8, true))
		require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
		v.intact()
	})
	t.Run("FIN behind it", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.p.send(rawTerminate(rdmap.Terminate{Layer: 0, Type: 1, Code: 2}))
		v.p.close()
		v.ended(terminated(0, 1, 2, true))
	})
	t.Run("quotation cut off", func(t *testing.T) {
		for _, body := range [][]byte{{0x01, 2, 0xc0, 0}, {0x01, 2, 0xc0, 0, 0}, {0x01, 2, 0xc0, 0, 0, 44},
			{0x01, 2, 0xe0, 0, 0, 44, 0x41, 0x41, 0}} {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.p.send(rawUntagged(rdmap.OpTerminate, 2, 1, body))
			v.p.eof()
			v.p.close()
			v.ended(terminated(0, 1, 2, true))
		}
	})
	t.Run("too short", func(t *testing.T) {
		for size := range rdmap.TerminateLen {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.p.send(rawUntagged(rdmap.OpTerminate, 2, 1, make([]byte, size)))
			v.p.gone()
			v.p.close()
			select {
			case <-v.id.Done():
			case <-soon(t).Done():
				require.FailNow(t, "the connection has not ended")
			}
			require.Error(t, v.qp.Err())
		}
	})
	t.Run("larger than any", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		body := append([]byte{0x01, 2, 0xe0, 0, 0, 46}, rawRead(1, fetch(v.all, 0, 8))...)
		v.p.send(rawUntagged(rdmap.OpTerminate, 2, 1, append(body, make([]byte, 5000)...)))
		v.p.eof()
		v.p.close()
		v.ended(terminated(0, 1, 2, true))
	})
}
