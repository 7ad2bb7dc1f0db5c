// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var qpTests = []test{
	{"Create", qpCreate},
	{"CreateInvalid", qpCreateInvalid},
	{"Transitions", qpTransitions},
	{"ModifyInvalid", qpModifyInvalid},
	{"ByHand", qpByHand},
	{"PostWrongState", qpPostWrongState},
	{"Query", qpQuery},
	{"AccessFlags", qpAccessFlags},
	{"AccessWithdrawn", qpAccessWithdrawn},
	{"SendQueueDrained", qpSendQueueDrained},
	{"ErrorFlushes", qpErrorFlushes},
	{"Drain", qpDrain},
	{"DrainIdle", qpDrainIdle},
	{"CloseBusy", qpCloseBusy},
	{"CloseFlushes", qpCloseFlushes},
	{"Reset", qpReset},
	{"Reconnect", qpReconnect},
}

func qpCreate(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.Equal(w, verbs.QPStateReset.String(), s.qp.State().String())
	require.NoError(w, s.qp.Err())
	require.Same(w, w.a.pd, s.qp.PD())
	require.Same(w, w.a.ctx, s.qp.Context())
	require.Same(w, s.scq, s.qp.SendCQ())
	require.Same(w, s.rcq, s.qp.RecvCQ())
	require.NotNil(w, s.qp.Provider())

	plain := w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq})
	c := plain.Cap()
	require.GreaterOrEqual(w, c.MaxSendWR, min(verbs.DefaultSendWR, w.a.attr.MaxQPWR))
	require.GreaterOrEqual(w, c.MaxRecvWR, min(verbs.DefaultRecvWR, w.a.attr.MaxQPWR))
	require.GreaterOrEqual(w, c.MaxSendSGE, verbs.DefaultSGE)
	require.GreaterOrEqual(w, c.MaxRecvSGE, verbs.DefaultSGE)

	seen := map[uint32]bool{s.qp.Num(): true, plain.Num(): true}
	require.Len(w, seen, 2)
	for i := range 10 {
		want := verbs.QPCap{MaxSendWR: 1 + i, MaxRecvWR: 2 + i, MaxSendSGE: 1 + i%2, MaxRecvSGE: 1,
			MaxInlineData: min(i, w.a.attr.MaxInlineData)}
		q := w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq, Type: verbs.QPTypeRC, Cap: want})
		require.False(w, seen[q.Num()], "number %d is given twice", q.Num())
		seen[q.Num()] = true
		got := q.Cap()
		require.True(w, got.MaxSendWR >= want.MaxSendWR && got.MaxRecvWR >= want.MaxRecvWR &&
			got.MaxSendSGE >= want.MaxSendSGE && got.MaxRecvSGE >= want.MaxRecvSGE &&
			got.MaxInlineData >= want.MaxInlineData, "asked for %+v, got %+v", want, got)
	}
	return tested
}

func qpCreateInvalid(w *world) outcome {
	cq := w.a.createCQ(verbs.CQConfig{})
	for _, cfg := range []verbs.QPConfig{{}, {SendCQ: cq}, {RecvCQ: cq},
		{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: -1}},
		{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxRecvWR: -1}},
		{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendSGE: -1}},
		{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxRecvSGE: -1}},
		{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxInlineData: -1}}} {
		_, err := w.a.pd.CreateQP(cfg)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	lacking := []verbs.QPType{9}
	if w.iwarp() {
		lacking = append(lacking, verbs.QPTypeUC, verbs.QPTypeUD)
	}
	for _, typ := range lacking {
		_, err := w.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: typ})
		requireErr(w.T, err, verbs.ErrNotSupported)
	}
	return tested
}

// modify changes only the state.
func (s *side) modify(to verbs.QPState) error {
	return s.qp.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState)
}

// qpTransitions tries every transition that is not in the state diagram, from the states that can
// be reached without a peer, and from RTS. The errors name both states and the possible ones.
func qpTransitions(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	refuse := func(s *side, from verbs.QPState, to ...verbs.QPState) {
		w.Helper()
		for _, to := range to {
			err := s.modify(to)
			requireErr(w.T, err, verbs.ErrState)
			require.ErrorContains(w, err, from.String())
			require.ErrorContains(w, err, to.String())
			var se *verbs.StateError
			require.ErrorAs(w, err, &se)
			require.Equal(w, from, se.State)
			require.Equal(w, from.String(), s.qp.State().String(), "a refused transition changes nothing")
		}
	}
	refuse(s, verbs.QPStateReset, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateSQE)
	require.NoError(w, s.modify(verbs.QPStateReset))
	bindINIT(s)
	require.Equal(w, verbs.QPStateInit, s.qp.State())
	refuse(s, verbs.QPStateInit, verbs.QPStateRTS, verbs.QPStateSQD, verbs.QPStateSQE)
	bindINIT(s) // INIT to INIT sets attributes
	require.NoError(w, s.modify(verbs.QPStateReset))
	require.Equal(w, verbs.QPStateReset, s.qp.State())
	bindINIT(s)
	require.NoError(w, s.modify(verbs.QPStateErr))
	require.Equal(w, verbs.QPStateErr, s.qp.State())
	require.Error(w, s.qp.Err())
	refuse(s, verbs.QPStateErr, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD,
		verbs.QPStateSQE)
	require.NoError(w, s.modify(verbs.QPStateErr))
	if w.reset(s) {
		require.NoError(w, s.qp.Err())
		require.NoError(w, s.modify(verbs.QPStateErr), "also from RESET")
	}

	p := w.pair(pairConfig{})
	require.Equal(w, verbs.QPStateRTS, p.a.qp.State())
	require.NoError(w, p.a.qp.Err())
	refuse(p.a, verbs.QPStateRTS, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateSQE)
	p.works()
	return tested
}

func qpModifyInvalid(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	requireErr(w.T, s.modify(7), verbs.ErrInvalid)
	requireErr(w.T, s.modify(255), verbs.ErrInvalid)
	init := verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1}
	const mask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	changes := []func(a *verbs.QPAttr){
		func(a *verbs.QPAttr) { a.PortNum = 0 },
		func(a *verbs.QPAttr) { a.PortNum = uint8(w.a.attr.PhysPortCnt + 1) },
	}
	for _, change := range changes {
		attr := init
		change(&attr)
		requireErr(w.T, s.qp.Modify(attr, mask), verbs.ErrInvalid)
		require.Equal(w, verbs.QPStateReset, s.qp.State())
	}
	unknown := init
	unknown.AccessFlags = 1 << 31
	if err := s.qp.Modify(unknown, mask); err != nil {
		requireErr(w.T, err, verbs.ErrInvalid)
	} else {
		require.False(w, w.f.userSpace())
		w.without("qp-access-check") // kernel drivers do not check
		require.NoError(w, s.modify(verbs.QPStateReset))
	}
	require.Equal(w, verbs.QPStateReset, s.qp.State())
	wrong := init
	wrong.CurState = verbs.QPStateRTS
	require.Error(w, s.qp.Modify(wrong, mask|verbs.QPAttrCurState))
	require.Equal(w, verbs.QPStateReset, s.qp.State())
	require.NoError(w, s.qp.Modify(init, mask))
	return tested
}

// qpByHand: on iWARP only the connection manager moves a QP to RTR and RTS; on InfiniBand the
// caller can, but must specify the destination.
func qpByHand(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	bindINIT(s)
	err := s.modify(verbs.QPStateRTR)
	require.Error(w, err)
	if w.iwarp() {
		requireErr(w.T, err, verbs.ErrState)
		require.ErrorContains(w, err, "connection manager")
	} else {
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	require.Equal(w, verbs.QPStateInit, s.qp.State())
	return tested
}

func qpPostWrongState(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	refuse := func(n int, err error, state verbs.QPState) {
		w.Helper()
		require.Zero(w, n)
		requireErr(w.T, err, verbs.ErrState)
		require.ErrorContains(w, err, state.String())
	}
	every, recv := w.requests(s, s), []verbs.RecvWR{{ID: 2}}
	refuseEvery := func(state verbs.QPState) {
		w.Helper()
		same := s.mem.keeps()
		for i := range every {
			n, err := s.qp.PostSend(every[i : i+1])
			refuse(n, err, state)
		}
		same()
	}
	refuseEvery(verbs.QPStateReset)
	n, err := s.qp.PostRecv(recv)
	refuse(n, err, verbs.QPStateReset)
	bindINIT(s)
	refuseEvery(verbs.QPStateInit)
	n, err = s.qp.PostRecv(recv)
	require.NoError(w, err)
	require.Equal(w, 1, n)
	s.idle(s.rcq)
	// In ERR requests are accepted and flushed.
	require.NoError(w, s.modify(verbs.QPStateErr))
	s.flushed(s.rcq, 2)
	for i := range 300 { // more than the queues hold at once
		id := uint64(10 + i)
		s.post(verbs.SendWR{ID: id, Opcode: verbs.WRSend}, verbs.SendWR{ID: id + 1, Opcode: verbs.WRRDMARead})
		s.recv(id)
		s.flushed(s.scq, id, id+1)
		s.flushed(s.rcq, id)
	}
	same := s.mem.keeps()
	for i, wr := range every {
		wr.ID = uint64(i)
		s.post(wr)
		s.flushed(s.scq, wr.ID)
	}
	same()
	s.idle(s.scq)
	return tested
}

func qpQuery(w *world) outcome {
	p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: 3, ResponderResources: 5},
		bParam: cm.ConnParam{InitiatorDepth: 4, ResponderResources: 2}})
	for _, s := range []*side{p.a, p.b} {
		attr, err := s.qp.Query()
		require.NoError(w, err)
		require.Equal(w, verbs.QPStateRTS, attr.State)
		require.Equal(w, verbs.QPStateRTS, attr.CurState)
		require.EqualValues(w, 1, attr.PortNum)
		require.Equal(w, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic,
			attr.AccessFlags&(verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))
		ord, ird := s.id.Depths()
		if w.siwBelow(w.f.Active) || w.siwBelow(w.f.Passive) {
			// Kernel siw reports the maximum of the device, or powers of two.
			w.without("depth-query")
			require.GreaterOrEqual(w, attr.MaxRdAtomic, ord)
			require.GreaterOrEqual(w, attr.MaxDestRdAtomic, ird)
			continue
		}
		require.Equal(w, ord, attr.MaxRdAtomic)
		require.Equal(w, ird, attr.MaxDestRdAtomic)
	}
	return tested
}

// qpAccessFlags: a QP refuses an access that it does not permit, whatever the region permits.
func qpAccessFlags(w *world) outcome {
	const all = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	for _, c := range []struct {
		name   string
		access verbs.AccessFlags
		op     verbs.Op
		wrs    func(w *world) []verbs.SendWR
	}{
		{"Write", all &^ verbs.AccessRemoteWrite, verbs.OpWrite, (*world).writes},
		{"Read", all &^ verbs.AccessRemoteRead, verbs.OpRead, (*world).reads},
		{"FetchAdd", all &^ verbs.AccessRemoteAtomic, verbs.OpFetchAdd, (*world).everyAtomic}, // and the others
	} {
		w.sub(c.name, func(w *world) outcome {
			if !w.has(c.op) {
				return noted // atomicFetchAdd checks the refusal
			}
			for _, wr := range c.wrs(w) {
				w.Log(wr.Opcode)
				p := w.pair(pairConfig{before: func(p *pair) {
					require.NoError(p, p.b.qp.Modify(
						verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: c.access},
						verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
				}})
				attr, err := p.b.qp.Query()
				require.NoError(w, err)
				require.Equal(w, c.access, attr.AccessFlags&all)
				wr = at(wr, p.a.mem, 0, p.b.mem, 8)
				if !p.allowsAnything(wr) {
					p.deniedAt(p.b.mem, wr, w.qpDenied(), oneWay(wr))
				}
			}
			return tested
		})
	}
	return tested
}

// allowsAnything reports whether the fabric is kernel siw, which does not check a QP's access
// flags. A siw with RFC 7306 does, but a QP that permits Reads and Writes also permits atomics: the
// kernel's connection manager sets no other rights.
func (p *pair) allowsAnything(wr verbs.SendWR) bool {
	p.Helper()
	checks := p.b.ctx.Ops().Has(verbs.OpImm64) && (wr.Opcode == verbs.WRRDMARead || oneWay(wr))
	if !p.kernelIWARP() || checks {
		return false
	}
	require.Equal(p, verbs.WCSuccess.String(), p.a.run(wr).Status.String())
	p.without("qp-access")
	return true
}

// qpDenied returns the refusal of a request that the QP does not permit. On InfiniBand it is an
// operation that the queue does not support.
func (w *world) qpDenied() fault {
	f := fault{0, 1, 0x02, verbs.WCRemAccessErr}
	if !w.iwarp() {
		f.status = verbs.WCRemInvReqErr
	}
	return f
}

// qpAccessWithdrawn: a QP's access flags can be changed while it is connected.
func qpAccessWithdrawn(w *world) outcome {
	p := w.pair(pairConfig{})
	wr := read(p.a.mem.sgl(0, 8), p.b.mem, 0)
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	require.NoError(w, p.b.qp.Modify(verbs.QPAttr{AccessFlags: verbs.AccessRemoteWrite}, verbs.QPAttrAccessFlags))
	require.Equal(w, verbs.QPStateRTS, p.b.qp.State())
	p.exchangeWrite(p.b.mem, 0, 100)
	if p.allowsAnything(wr) {
		return noted
	}
	p.deniedAt(p.b.mem, wr, w.qpDenied(), false)
	return tested
}

// qpSendQueueDrained: in the state SQD, new requests wait until the QP returns to RTS. Some devices
// lack this state.
func qpSendQueueDrained(w *world) outcome {
	p := w.pair(pairConfig{})
	if err := p.a.modify(verbs.QPStateSQD); err != nil {
		require.Equal(w, verbs.QPStateRTS, p.a.qp.State())
		p.works()
		w.lacking("sqd", err)
		return noted
	}
	p.b.recv(1)
	p.b.recv(2)
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	p.a.idle(p.a.scq)
	require.NoError(w, p.a.modify(verbs.QPStateRTS))
	// rxe resumes when another request is posted
	p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	for i := range 2 {
		require.EqualValues(w, 2+i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		p.b.ok(p.b.received(), verbs.WCRecv)
	}
	return tested
}

// qpErrorFlushes: a QP in ERR flushes in order, and its connection ends on both sides.
func qpErrorFlushes(w *world) outcome {
	by := w.pair(pairConfig{})
	p := w.pair(pairConfig{})
	for i := range 5 {
		p.a.recv(uint64(i))
		p.b.recv(uint64(i))
	}
	require.NoError(w, p.a.modify(verbs.QPStateErr))
	p.a.flushed(p.a.rcq, 0, 1, 2, 3, 4)
	require.ErrorIs(w, p.a.qp.Err(), verbs.ErrClosed)
	p.disconnected()
	p.b.flushed(p.b.rcq, 0, 1, 2, 3, 4)
	require.Equal(w, verbs.QPStateErr, p.b.qp.State())
	require.Error(w, p.b.qp.Err())
	p.b.post(verbs.SendWR{ID: 9, Opcode: verbs.WRSend})
	p.b.flushed(p.b.scq, 9)
	by.works()
	return tested
}

// qpDrain drains a QP during long Reads: every request completes exactly once, and the memory of
// failed ones does not change after that.
func qpDrain(w *world) outcome {
	p := w.pair(pairConfig{})
	const n, count = 1 << 20, 20
	src, dst := w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite)
	p.a.recv(100)
	for i := range count {
		wr := read(dst.sgl(0, n), src, 0)
		wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
		p.a.post(wr)
	}
	require.Zero(w, p.a.sent().ID)
	require.NoError(w, p.a.qp.Drain(within(w.T)))
	wcs := make([]verbs.WC, count+1)
	k, err := p.a.scq.Poll(wcs)
	require.NoError(w, err)
	require.Equal(w, count-1, k, "all completions are in the CQ when Drain returns")
	failed := false
	for i, wc := range wcs[:k] {
		require.EqualValues(w, i+1, wc.ID)
		if wc.Status != verbs.WCSuccess {
			failed = true
			require.Equal(w, verbs.WCWRFlushErr.String(), wc.Status.String())
		} else {
			require.False(w, failed, "a success behind a failure")
		}
	}
	k, err = p.a.rcq.Poll(wcs)
	require.NoError(w, err)
	require.Equal(w, 1, k)
	require.Equal(w, verbs.WCWRFlushErr, wcs[0].Status)
	dst.fill(0x77)
	same := dst.keeps()
	closes(w.T, p.b.id.Done(), "the end of the connection at the peer")
	same()
	return tested
}

func qpDrainIdle(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.NoError(w, s.qp.Drain(within(w.T)), "in RESET")
	require.Equal(w, verbs.QPStateErr, s.qp.State())
	require.NoError(w, s.qp.Drain(within(w.T)), "again")
	p := w.pair(pairConfig{})
	p.works()
	require.NoError(w, p.a.qp.Drain(within(w.T)))
	p.a.idle(p.a.scq)
	return tested
}

// qpCloseBusy destroys a QP during traffic. Its requests are flushed before Close returns.
func qpCloseBusy(w *world) outcome {
	by := w.pair(pairConfig{})
	for round := range 5 {
		p := w.pair(pairConfig{})
		const n, count = 50_000, 15
		src, dst := w.b.alloc(n, allRights), w.a.alloc(n, allRights)
		for i := range count {
			p.b.recv(uint64(i), p.b.mem.sge(0, 100))
			p.a.recv(uint64(i))
			wrs := []verbs.SendWR{read(dst.sgl(0, n), src, 0), write(dst.sgl(0, n), src, 0),
				{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 100)}}
			for k := range wrs {
				wrs[k].ID, wrs[k].Flags = uint64(3*i+k), verbs.SendSignaled
			}
			p.a.post(wrs...)
		}
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		require.NoError(w, p.a.qp.Close())
		wcs := make([]verbs.WC, 3*count+1)
		k, err := p.a.scq.Poll(wcs)
		require.NoError(w, err)
		require.Equal(w, 3*count, k, "every request completes")
		for i, wc := range wcs[:k] {
			require.EqualValues(w, i, wc.ID)
		}
		k, err = p.a.rcq.Poll(wcs)
		require.NoError(w, err)
		require.Equal(w, count, k)
		p.disconnected()
		for i := range count {
			require.EqualValues(w, i, p.b.received().ID)
		}
	}
	by.works()
	return tested
}

// qpCloseFlushes: even a QP that was never connected flushes its receives.
func qpCloseFlushes(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	bindINIT(s)
	s.recv(1, s.mem.sge(0, 100))
	s.recv(2)
	require.NoError(w, s.qp.Close())
	s.flushed(s.rcq, 1, 2)
	requireClosed(w.T, s.modify(verbs.QPStateReset))
	require.Equal(w, verbs.QPStateErr, s.qp.State(), "a closed QP counts as in error")
	return tested
}

// qpReset: resetting a QP drops its requests.
func qpReset(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	bindINIT(s)
	s.recv(1)
	require.NoError(w, s.modify(verbs.QPStateReset))
	s.idle(s.rcq)
	bindINIT(s)
	s.recv(2)
	require.NoError(w, s.modify(verbs.QPStateErr))
	s.flushed(s.rcq, 2)

	p := w.pair(pairConfig{})
	p.b.recv(1)
	if !w.reset(p.a) {
		return noted
	}
	require.Equal(w, verbs.QPStateReset, p.a.qp.State())
	p.a.afterReset()
	p.disconnected()
	p.b.flushed(p.b.rcq, 1)
	return tested
}

// reset moves a QP to RESET. It reports false, and records that, on kernel siw, which cannot reset
// a used QP.
func (w *world) reset(s *side) bool {
	w.Helper()
	err := s.modify(verbs.QPStateReset)
	if !w.kernelIWARP() {
		require.NoError(w, err)
		return true
	}
	w.lacking("qp-reset", err)
	return false
}

// afterReset closes the connection of a QP that was moved to RESET if the device does not: in the
// kernel, a QP is not tied to its connection.
func (s *side) afterReset() {
	s.Helper()
	if ofKernel(s.ctx.Device()) {
		require.NoError(s, s.id.Disconnect())
	}
}

// qpReconnect uses the two QPs for several successive connections.
func qpReconnect(w *world) outcome {
	p := w.pair(pairConfig{})
	for i := range 4 {
		if w.kernelIWARP() {
			require.NoError(w, p.a.modify(verbs.QPStateErr))
			require.False(w, w.reset(p.a))
			return noted
		}
		w.sub(fmt.Sprint(i), func(w *world) outcome {
			p := p.in(w)
			p.works()
			first, second := p.a, p.b
			if i%2 == 1 {
				first, second = p.b, p.a
			}
			require.NoError(w, first.id.Disconnect())
			closes(w.T, second.id.Done(), "the end of the connection at the peer")
			for _, s := range []*side{p.a, p.b} {
				err := s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPAttrState)
				requireErr(w.T, err, verbs.ErrState)
				require.NoError(w, s.modify(verbs.QPStateReset))
			}
			return tested
		})
		p.a.id, p.b.id = nil, nil
		ctx, cancel := context.WithTimeout(w.Context(), waitLimit)
		p.connect(pairConfig{})
		require.NoError(w, ctx.Err())
		cancel()
	}
	p.works()
	return tested
}
