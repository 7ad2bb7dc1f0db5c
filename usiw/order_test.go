// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// orderRows are the rules of RFC 5040 section 5.5, the rows of its appendix B and the rows of
// RFC 7306 section 7. If the columns of a row promise nothing, there is nothing to observe; the row
// then says why, or what this implementation does where it is free to choose.
var orderRows = []struct {
	name string
	run  func(o *orderStage)
	why  string // why it cannot be observed
}{
	// RFC 5040 section 5.5.
	{name: "requests complete in the order of posting", run: (*orderStage).completions},
	{name: "Send and Write complete when the stream has them", run: (*orderStage).localCompletion},
	{name: "a Read completes when its response is delivered", run: (*orderStage).readCompletion},
	{name: "a fence holds back until Reads and atomics are answered", run: (*orderStage).fences},
	{name: "between the directions of a stream and between streams", why: "nothing is promised"},
	{name: "buffers before delivery", why: "contents are indeterminate: nothing is promised"},

	// RFC 5040 appendix B.
	{name: "Send then Send", run: func(o *orderStage) { o.received(orderSends, orderSends) }},
	{name: "Send then Write", why: "nothing is promised in any column"},
	{name: "Send then Read", run: func(o *orderStage) { o.seen(orderSends, orderRead) }},
	// The table promises nothing, but by section 5.5 the delivery of a Send means that the Writes
	// before it have been placed.
	{name: "Write then Send", run: func(o *orderStage) { o.delivered(orderSends) }},
	{name: "Write then Write", why: "nothing is promised in any column"},
	{name: "Write then Read", run: func(o *orderStage) { o.seen(orderWrites, orderRead) }},
	{name: "Read then Send", run: func(o *orderStage) { o.overtakes(orderRead, orderSends) }},
	{name: "Read then Write", run: func(o *orderStage) { o.overtakes(orderRead, orderWrites) }},
	{name: "Read then Read", run: func(o *orderStage) { o.answers("RR") }},

	// RFC 7306 section 7.
	{name: "Immediate then Send", run: func(o *orderStage) { o.received(orderImms, orderSends) }},
	{name: "Immediate then Write", why: "nothing is promised in any column"},
	{name: "Immediate then Read", run: func(o *orderStage) { o.seen(orderImms, orderRead) }},
	{name: "Immediate then Atomic", run: func(o *orderStage) { o.seen(orderImms, orderAtomic) }},
	{name: "Immediate then Immediate", run: func(o *orderStage) { o.received(orderImms, orderImms) }},
	{name: "Send then Immediate", run: func(o *orderStage) { o.received(orderSends, orderImms) }},
	{name: "Write then Immediate", run: func(o *orderStage) { o.delivered(orderImms) }},
	{name: "Read then Immediate", run: func(o *orderStage) { o.overtakes(orderRead, orderImms) }},
	{name: "Atomic then Immediate", run: func(o *orderStage) { o.overtakes(orderAtomic, orderImms) }},
	{name: "Atomic then Send", run: func(o *orderStage) { o.overtakes(orderAtomic, orderSends) }},
	{name: "Atomic then Write", run: func(o *orderStage) { o.overtakes(orderAtomic, orderWrites) }},
	{name: "Atomic then Read", run: func(o *orderStage) { o.answers("AR") }},
	{name: "Atomic then Atomic", run: func(o *orderStage) { o.answers("AA") }},
	{name: "Send then Atomic", run: func(o *orderStage) { o.seen(orderSends, orderAtomic) }},
	{name: "Write then Atomic", run: func(o *orderStage) { o.seen(orderWrites, orderAtomic) }},
	{name: "Read then Atomic", run: func(o *orderStage) { o.answers("RA") }},
	{name: "all of them", run: func(o *orderStage) { o.answers("RRAARARAAARRRA") }},
}

// TestOrder tests each row on an in-memory wire, where the test decides which bytes arrive when.
func TestOrder(t *testing.T) {
	for _, row := range orderRows {
		require.True(t, (row.run == nil) != (row.why == ""), "%s: a test or a reason", row.name)
		if row.run != nil {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { row.run(&orderStage{t: t}) })
			})
		}
	}
}

// The messages of A in the rows. All Sends and Writes place their data at the start of B's memory,
// where Reads read and atomics add.
var (
	orderSends = []verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRSend, Flags: verbs.SendSolicited},
		{Opcode: verbs.WRSendWithInv}, {Opcode: verbs.WRSendWithInv, Flags: verbs.SendSolicited}}
	orderImms = []verbs.SendWR{{Opcode: verbs.WRImmData, Imm64: 1},
		{Opcode: verbs.WRImmData, Imm64: 2, Flags: verbs.SendSolicited}}
	orderWrites = []verbs.SendWR{{Opcode: verbs.WRRDMAWrite}}
	orderRead   = []verbs.SendWR{{Opcode: verbs.WRRDMARead}}
	orderAtomic = []verbs.SendWR{{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}}
)

const (
	orderMem  = 512 << 10
	orderSink = 256 << 10 // destination of A's Reads and atomics
)

// orderStage holds the objects that the rows use.
type orderStage struct {
	t *testing.T
	*usiwtest.Pair
	mw *verbs.MW
}

// open connects A and B.
func (o *orderStage) open() {
	o.t.Helper()
	o.Pair = usiwtest.Connect(o.t, usiwtest.PairConfig{Mem: orderMem})
	var err error
	o.mw, err = o.B.PD.AllocMW(verbs.MWType2)
	require.NoError(o.t, err)
}

// message returns a message of n bytes and posts the receive that it needs.
func (o *orderStage) message(wr verbs.SendWR, n int) verbs.SendWR {
	o.t.Helper()
	sgl := func(e *usiwtest.End, off, n int) []verbs.SGE {
		s, err := e.MR.SGE(off, n)
		require.NoError(o.t, err)
		return []verbs.SGE{s}
	}
	wr.RKey, wr.RemoteAddr = o.B.MR.RKey(), o.B.MR.Addr()
	switch wr.Opcode {
	case verbs.WRRDMAWrite:
		wr.SGL = sgl(o.A, 0, n)
	case verbs.WRRDMARead:
		wr.SGL = sgl(o.A, orderSink, n)
	case verbs.WRAtomicFetchAndAdd:
		wr.SGL = sgl(o.A, orderSink, 8)
	default:
		if wr.Opcode != verbs.WRImmData {
			wr.SGL = sgl(o.A, 0, n)
		}
		_, err := o.B.QP.PostRecv([]verbs.RecvWR{{SGL: sgl(o.B, 0, n)}})
		require.NoError(o.t, err)
	}
	if wr.Opcode == verbs.WRSendWithInv {
		bind := &verbs.MWBind{MW: o.mw, MR: o.B.MR, Addr: o.B.MR.Addr(), Length: 8, Access: verbs.AccessRemoteRead}
		wc, err := o.B.Do(o.t.Context(), verbs.SendWR{Opcode: verbs.WRBindMW, RKey: o.mw.NextRKey(), Bind: bind})
		require.NoError(o.t, err)
		require.NoError(o.t, wc.Err())
		wr.InvalidateRKey = o.mw.RKey()
	}
	return wr
}

// post posts A's requests.
func (o *orderStage) post(wrs ...verbs.SendWR) {
	o.t.Helper()
	for i := range wrs {
		wrs[i].ID = uint64(i)
		wrs[i].Flags |= verbs.SendSignaled
	}
	_, err := o.A.QP.PostSend(wrs)
	require.NoError(o.t, err)
}

// done waits for A's next completion, which must be a success of request id.
func (o *orderStage) done(id int) {
	o.t.Helper()
	wc, err := usiwtest.Next(o.t.Context(), o.A.SendCQ)
	require.NoError(o.t, err)
	require.NoError(o.t, wc.Err())
	require.EqualValues(o.t, id, wc.ID)
}

// poll returns the completions currently in a CQ.
func (o *orderStage) poll(cq *verbs.CQ) []verbs.WC {
	o.t.Helper()
	var wcs [16]verbs.WC
	n, err := cq.Poll(wcs[:])
	require.NoError(o.t, err)
	return wcs[:n]
}

// sizes are lengths of one FPDU and of several.
var orderSizes = []int{8, 1000, 200_000}

// received: the second message completes at the receiver after the first.
func (o *orderStage) received(first, second []verbs.SendWR) {
	o.open()
	for _, a := range first {
		for _, b := range second {
			if a.Opcode == verbs.WRSendWithInv && b.Opcode == verbs.WRSendWithInv {
				b = orderSends[0] // there is only one window
			}
			for _, n := range orderSizes {
				b.Imm64 += 16 // two messages of the same kind carry different data
				o.post(o.message(a, n), o.message(b, 4))
				for i, wr := range []verbs.SendWR{a, b} {
					wc, err := usiwtest.Next(o.t.Context(), o.B.RecvCQ)
					require.NoError(o.t, err)
					require.NoError(o.t, wc.Err())
					want, bytes := verbs.WCRecv, []int{n, 4}[i]
					if wr.Opcode == verbs.WRImmData {
						want, bytes = verbs.WCRecvImmData, rdmap.ImmediateLen
						require.Equal(o.t, wr.Imm64, wc.Imm64)
					}
					require.Equal(o.t, want, wc.Opcode)
					require.EqualValues(o.t, bytes, wc.ByteLen)
					require.Equal(o.t, wr.Opcode == verbs.WRSendWithInv, wc.Flags&verbs.WCWithInv != 0)
				}
				o.done(0)
				o.done(1)
			}
		}
	}
}

// seen: the response to the second request shows that the first was placed, and once it arrives the
// first has completed.
func (o *orderStage) seen(first, second []verbs.SendWR) {
	o.open()
	for _, a := range first {
		for _, b := range second {
			for i, n := range orderSizes {
				data := pattern(n, byte(i+1))
				copy(o.A.MR.Bytes(), data)
				o.post(o.message(a, n), o.message(b, n))
				o.done(0)
				o.done(1)
				received := o.poll(o.B.RecvCQ)
				if a.Opcode == verbs.WRRDMAWrite {
					require.Empty(o.t, received)
				} else {
					require.Len(o.t, received, 1, "completed before the answer was made")
					require.NoError(o.t, received[0].Err())
				}
				if a.Opcode == verbs.WRImmData {
					continue // it places nothing
				}
				want := data
				if b.Opcode == verbs.WRAtomicFetchAndAdd {
					want = data[:8]
				}
				got := o.A.MR.Bytes()[orderSink : orderSink+len(want)]
				require.True(o.t, bytes.Equal(want, got), "%v, %v, %d bytes", a.Opcode, b.Opcode, n)
			}
		}
	}
}

// delivered: when the message after a Write is delivered, the Write has been placed.
func (o *orderStage) delivered(second []verbs.SendWR) {
	o.open()
	o.Link.ToListener.Split(3000)
	for _, b := range second {
		for i, n := range orderSizes {
			data := pattern(n, byte(i+1))
			copy(o.A.MR.Bytes(), data)
			o.post(o.message(orderWrites[0], n), o.message(b, 0))
			wc, err := usiwtest.Next(o.t.Context(), o.B.RecvCQ)
			require.NoError(o.t, err)
			require.NoError(o.t, wc.Err())
			require.True(o.t, bytes.Equal(data, o.B.MR.Bytes()[:n]))
			o.done(0)
			o.done(1)
		}
	}
}

// overtakes: the second request may be placed and completed at the remote side before the first is
// answered. Without a fence it is, if the response has not been sent yet; with a fence it is not.
func (o *orderStage) overtakes(first, second []verbs.SendWR) {
	o.open()
	for _, a := range first {
		for _, b := range second {
			for _, fence := range []verbs.SendFlags{0, verbs.SendFence} {
				data := pattern(8, byte(fence)+1)
				copy(o.A.MR.Bytes(), data)
				clear(o.B.MR.Bytes()[:8])
				o.Link.ToDialer.Stall()
				second := o.message(b, 8)
				second.Flags |= fence
				o.post(o.message(a, 8), second)
				synctest.Wait()
				overtaken := fence == 0
				if b.Opcode != verbs.WRImmData {
					require.Equal(o.t, overtaken, bytes.Equal(data, o.B.MR.Bytes()[:8]))
				}
				if b.Opcode != verbs.WRRDMAWrite {
					require.Equal(o.t, overtaken, len(o.poll(o.B.RecvCQ)) == 1)
				}
				require.Empty(o.t, o.poll(o.A.SendCQ), "requests complete in the order of posting")
				o.Link.ToDialer.Resume()
				o.done(0)
				o.done(1)
				synctest.Wait()
				if b.Opcode != verbs.WRImmData {
					require.Equal(o.t, data, o.B.MR.Bytes()[:8])
				}
				if !overtaken && b.Opcode != verbs.WRRDMAWrite {
					require.Len(o.t, o.poll(o.B.RecvCQ), 1)
				}
			}
		}
	}
}

// completions: a request that finishes early waits for those posted before it.
func (o *orderStage) completions() {
	o.open()
	o.Link.ToDialer.Stall()
	o.post(o.message(orderWrites[0], 100), o.message(orderRead[0], 100), o.message(orderWrites[0], 100),
		o.message(orderSends[0], 100), o.message(orderAtomic[0], 8), o.message(orderImms[0], 8),
		o.message(orderRead[0], 0), o.message(orderWrites[0], 0))
	synctest.Wait()
	require.Len(o.t, o.poll(o.A.SendCQ), 1, "the Write in front")
	require.Len(o.t, o.poll(o.B.RecvCQ), 2, "the others have been done")
	o.Link.ToDialer.Resume()
	for id := 1; id < 8; id++ {
		o.done(id)
	}
}

// localCompletion: Sends and Writes complete although the peer has received nothing.
func (o *orderStage) localCompletion() {
	o.open()
	o.Link.ToListener.Stall()
	copy(o.A.MR.Bytes(), pattern(100, 9))
	o.post(o.message(orderSends[0], 100), o.message(orderWrites[0], 100), o.message(orderImms[0], 0))
	for id := range 3 {
		o.done(id)
	}
	require.Empty(o.t, o.poll(o.B.RecvCQ))
	require.Equal(o.t, make([]byte, 100), o.B.MR.Bytes()[:100])
	o.Link.ToListener.Resume()
	synctest.Wait()
	require.Len(o.t, o.poll(o.B.RecvCQ), 2)
	require.Equal(o.t, o.A.MR.Bytes()[:100], o.B.MR.Bytes()[:100])
}

// readCompletion: a Read completes neither when the request is sent nor when the answer is sent.
func (o *orderStage) readCompletion() {
	o.open()
	const d = time.Second
	o.Link.ToListener.Delay(d)
	o.Link.ToDialer.Delay(d)
	for _, wr := range []verbs.SendWR{orderRead[0], orderAtomic[0]} {
		began := time.Now()
		o.post(o.message(wr, 8))
		o.done(0)
		require.Equal(o.t, 2*d, time.Since(began))
	}
}

// fences: a chain of requests, each of which depends on the response to the one before.
func (o *orderStage) fences() {
	o.open()
	a, b := o.A.MR.Bytes(), o.B.MR.Bytes()
	fenced := func(wr verbs.SendWR, from, to int) verbs.SendWR {
		sge, err := o.A.MR.SGE(from, 8)
		require.NoError(o.t, err)
		wr.SGL, wr.RKey, wr.RemoteAddr = []verbs.SGE{sge}, o.B.MR.RKey(), o.B.MR.Addr()+uint64(to)
		wr.Flags |= verbs.SendFence
		return wr
	}
	binary.NativeEndian.PutUint64(b, 40)
	o.Link.ToDialer.Delay(time.Second)
	began := time.Now()
	o.post(
		fenced(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 2}, 0, 0), // A[0] = 40, B[0] = 42
		fenced(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, 0, 8),                 // B[8] = 40
		fenced(verbs.SendWR{Opcode: verbs.WRRDMARead}, 16, 0),                 // A[16] = 42
		fenced(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, 16, 24),               // B[24] = 42
		fenced(verbs.SendWR{Opcode: verbs.WRRDMARead}, 32, 24),                // A[32] = 42
	)
	for id := range 5 {
		o.done(id)
	}
	require.Equal(o.t, 3*time.Second, time.Since(began), "each fence waits for an answer")
	for _, c := range []struct {
		mem  []byte
		off  int
		want uint64
	}{{a, 0, 40}, {b, 0, 42}, {b, 8, 40}, {a, 16, 42}, {b, 24, 42}, {a, 32, 42}} {
		require.Equal(o.t, c.want, binary.NativeEndian.Uint64(c.mem[c.off:]))
	}
}

// answers: a peer's Reads (R) and atomics (A) are answered in request order, and atomics are
// performed in that order.
func (o *orderStage) answers(kinds string) {
	t := o.t
	w := usiwtest.NewWire()
	n := newRawNIC(t, usiw.Config{Network: w})
	e, p := wirePassive(n, w)
	mr := n.region(n.pd, make([]byte, 100_000), 0x10000, rawAccess)
	var requests [][]byte
	atomics := uint64(0)
	for i, kind := range kinds {
		msn := uint32(i + 1)
		if kind == 'A' {
			atomics++
			add := rdmap.AtomicRequest{ID: 100 + msn, STag: mr.RKey(), TO: mr.Addr(), AddSwap: 1}
			requests = append(requests, rawAtomic(msn, add))
			continue
		}
		get := rdmap.ReadRequest{SinkSTag: 200 + msn, Size: uint32(mr.Len()), SrcSTag: mr.RKey(), SrcTO: mr.Addr()}
		requests = append(requests, rawRead(msn, get))
	}
	p.send(requests...)
	before := uint64(0) // atomics whose response has arrived
	for i, kind := range kinds {
		msn := uint32(i + 1)
		if kind == 'A' {
			before++
			require.Equal(t, rawAtomicResponse(uint32(before), 100+msn, before-1), p.read(), "answer %d of %s", i,
				kinds)
			continue
		}
		for got := 0; got < mr.Len(); {
			u := p.read()
			h, err := ddp.ParseTagged(u)
			require.NoError(t, err)
			_, op := rdmap.ParseControl(h.ULP)
			require.Equal(t, rdmap.OpReadResponse, op, "answer %d of %s", i, kinds)
			require.Equal(t, 200+msn, h.STag, "answer %d of %s", i, kinds)
			data := u[ddp.TaggedLen:]
			require.EqualValues(t, got, h.TO)
			if got == 0 {
				// At least the atomics before it have been performed.
				require.GreaterOrEqual(t, binary.NativeEndian.Uint64(data), before)
			}
			got += len(data)
			require.Equal(t, got == mr.Len(), h.Last)
		}
	}
	synctest.Wait()
	require.Equal(t, atomics, binary.NativeEndian.Uint64(mr.Bytes()))
	require.Equal(t, verbs.QPStateRTS, e.qp.State())
	p.close()
}
