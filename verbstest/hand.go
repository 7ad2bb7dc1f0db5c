// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Connections that the program establishes itself with QP.Modify, and their failures. Native iWARP
// always requires a connection manager.
var handTests = []test{
	{"RC", handRC},
	{"Query", handQuery},
	{"Missing", handMissing},
	{"Superfluous", handSuperfluous},
	{"WrongValues", handWrongValues},
	{"Transitions", handTransitions},
	{"Again", handAgain},
	{"NobodyThere", handNobodyThere},
	{"NotReady", handNotReady},
	{"Drained", handDrained},
	{"CommEst", handCommEst},
	{"MTU", handMTU},
}

// step is one Modify on the way from RESET to RTS.
type step struct {
	attr verbs.QPAttr
	mask verbs.QPAttrMask
}

const (
	handPSN  = 0x123456
	handQKey = 0x11223344
)

// steps returns the steps for this side's QP, connected to another side's.
func (s *side) steps(to *side) []step {
	s.Helper()
	const st = verbs.QPAttrState
	init := step{verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, QKey: handQKey,
		AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic},
		st | verbs.QPAttrPKeyIndex | verbs.QPAttrPort}
	rtr := step{verbs.QPAttr{State: verbs.QPStateRTR, AH: s.path(to), PathMTU: verbs.MTU1024, DestQPNum: to.qp.Num(),
		RQPSN: handPSN, MaxDestRdAtomic: 4, MinRNRTimer: 12}, st}
	rts := step{verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: handPSN, Timeout: 14, RetryCnt: 3, RNRRetry: 7,
		MaxRdAtomic: 4}, st | verbs.QPAttrSQPSN}
	switch s.qp.Type() {
	case verbs.QPTypeUD:
		init.mask |= verbs.QPAttrQKey
		return []step{init, rtr, rts}
	case verbs.QPTypeRC:
		rtr.mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		rts.mask |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxRdAtomic
	}
	init.mask |= verbs.QPAttrAccessFlags
	rtr.mask |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	return []step{init, rtr, rts}
}

// gid returns the row of this side's GID table that contains the fabric's address.
func (s *side) gid() verbs.GIDEntry {
	s.Helper()
	row, err := s.ctx.ChooseGID(1, s.listen)
	require.NoError(s, err)
	return row
}

// path returns the path from this side to another one.
func (s *side) path(to *side) verbs.AHAttr {
	s.Helper()
	port, err := to.ctx.QueryPort(1)
	require.NoError(s, err)
	return verbs.AHAttr{IsGlobal: true, PortNum: 1, DLID: port.LID, GRH: verbs.GlobalRoute{DGID: to.gid().GID,
		SGIDIndex: uint8(s.gid().Index), HopLimit: 64}}
}

// overIWARP reports whether the device is an iWARP device, or provides InfiniBand semantics over
// one. In the latter case it lacks datagrams too.
func (w *world) overIWARP() bool { return w.iwarp() || w.a.attr.MaxAH == 0 }

// noHand reports whether QPs of a type cannot be connected by QP.Modify: iWARP lacks the type, or a
// native iWARP device refuses Modify.
func (w *world) noHand(t verbs.QPType) bool {
	w.Helper()
	if !w.overIWARP() || !w.iwarp() && t == verbs.QPTypeRC {
		return false
	}
	cq := w.a.createCQ(verbs.CQConfig{})
	qp, err := w.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: t})
	if t != verbs.QPTypeRC {
		w.lacking(t.String(), err)
		return true
	}
	require.NoError(w, err)
	defer func() { require.NoError(w, qp.Close()) }()
	s := &side{host: w.a, qp: qp}
	bindINIT(s)
	err = qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState)
	requireErr(w.T, err, verbs.ErrState)
	require.ErrorContains(w, err, "connection manager")
	w.note(Lack{"connection by hand", errnoName(err)})
	return true
}

// byHand returns two QPs connected without a connection manager.
func (w *world) byHand(cfg pairConfig) *pair {
	w.Helper()
	p := w.unconnected(cfg)
	p.handUp(verbs.QPStateRTS)
	return p
}

// handUp moves both QPs to a state.
func (p *pair) handUp(to verbs.QPState) {
	p.Helper()
	p.a.handTo(p.b, to)
	p.b.handTo(p.a, to)
}

// handTo moves a QP from RESET to a state.
func (s *side) handTo(peer *side, to verbs.QPState) {
	s.Helper()
	for _, st := range s.steps(peer) {
		require.NoError(s, s.qp.Modify(st.attr, st.mask), st.attr.State.String())
		require.Equal(s, st.attr.State.String(), s.qp.State().String())
		if st.attr.State == to {
			return
		}
	}
}

func handRC(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	by, p := w.byHand(pairConfig{}), w.byHand(pairConfig{})
	for range 3 {
		p.works()
	}
	by.works()
	m := w.b.alloc(1<<20, allRights)
	p.exchangeWrite(m, 0, 1<<20)
	if w.has(verbs.OpFetchAdd) {
		p.b.mem.put(0, 40)
		p.a.ok(p.a.run(at(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 2}, p.a.mem, 8, p.b.mem, 0)),
			verbs.WCFetchAdd)
		require.EqualValues(w, 42, p.b.mem.get(0))
	}
	// One side moves to ERR; the other gets no response.
	p.b.recv(1)
	require.NoError(w, p.b.modify(verbs.QPStateErr))
	p.b.flushed(p.b.rcq, 1)
	p.a.recv(2)
	wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
	require.Equal(w, verbs.WCRetryExcErr.String(), wc.Status.String())
	p.a.flushed(p.a.rcq, 2)
	require.Equal(w, verbs.QPStateErr.String(), p.a.qp.State().String())
	require.Error(w, p.a.qp.Err())
	return tested
}

func handQuery(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.byHand(pairConfig{})
	got, err := p.a.qp.Query()
	require.NoError(w, err)
	steps := p.a.steps(p.b)
	rtr, rts := steps[1].attr, steps[2].attr
	require.Equal(w, verbs.QPStateRTS.String(), got.State.String())
	require.EqualValues(w, 1, got.PortNum)
	require.Equal(w, rtr.PathMTU, got.PathMTU)
	require.Equal(w, rtr.DestQPNum, got.DestQPNum)
	require.Equal(w, rtr.MaxDestRdAtomic, got.MaxDestRdAtomic)
	require.Equal(w, rtr.MinRNRTimer, got.MinRNRTimer)
	require.Equal(w, rts.MaxRdAtomic, got.MaxRdAtomic)
	require.Equal(w, []uint8{rts.Timeout, rts.RetryCnt, rts.RNRRetry}, []uint8{got.Timeout, got.RetryCnt, got.RNRRetry})
	require.True(w, got.AH.IsGlobal)
	require.Equal(w, rtr.AH.GRH.DGID, got.AH.GRH.DGID)
	require.Equal(w, rtr.AH.GRH.SGIDIndex, got.AH.GRH.SGIDIndex)
	require.Equal(w, steps[0].attr.AccessFlags,
		got.AccessFlags&(verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))
	if w.noHand(verbs.QPTypeUC) {
		return tested
	}

	p = w.byHand(pairConfig{typ: verbs.QPTypeUC})
	got, err = p.a.qp.Query()
	require.NoError(w, err)
	require.Equal(w, verbs.QPStateRTS.String(), got.State.String())
	require.EqualValues(w, 1, got.PortNum)
	require.Equal(w, verbs.MTU1024, got.PathMTU)
	require.Equal(w, p.b.qp.Num(), got.DestQPNum)
	require.Equal(w, p.a.path(p.b).GRH.DGID, got.AH.GRH.DGID)
	require.Equal(w, p.a.qp.Cap(), got.Cap)

	p = w.byHand(pairConfig{typ: verbs.QPTypeUD})
	got, err = p.a.qp.Query()
	require.NoError(w, err)
	require.Equal(w, verbs.QPStateRTS.String(), got.State.String())
	require.EqualValues(w, 1, got.PortNum)
	require.EqualValues(w, handQKey, got.QKey)
	require.Equal(w, p.a.qp.Cap(), got.Cap)
	// Its key can be changed while in use; peers then need the new key.
	require.NoError(w, p.b.qp.Modify(verbs.QPAttr{QKey: handQKey + 1}, verbs.QPAttrQKey))
	got, err = p.b.qp.Query()
	require.NoError(w, err)
	require.EqualValues(w, handQKey+1, got.QKey)
	wr := p.datagram(p.a.createAH(p.a.path(p.b)), 0, 20)
	wr.UD.RemoteQKey++
	p.gets(wr, 20)
	return tested
}

// bits iterates over the attributes in a mask, except the state.
func bits(m verbs.QPAttrMask) func(func(verbs.QPAttrMask) bool) {
	return func(yield func(verbs.QPAttrMask) bool) {
		for bit := verbs.QPAttrMask(1); bit != 0 && bit <= m; bit <<= 1 {
			if m&bit != 0 && bit != verbs.QPAttrState && !yield(bit) {
				return
			}
		}
	}
}

// handMissing omits every required attribute of a step in turn. The error names the missing one,
// and nothing changes.
func handMissing(w *world) outcome {
	for _, t := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		w.sub(t.String(), func(w *world) outcome {
			if w.noHand(t) {
				return noted
			}
			p := w.unconnected(pairConfig{typ: t})
			from := verbs.QPStateReset
			for _, st := range p.a.steps(p.b) {
				for bit := range bits(st.mask) {
					err := p.a.qp.Modify(st.attr, st.mask&^bit)
					requireErr(w.T, err, verbs.ErrInvalid)
					require.ErrorContains(w, err, bit.String(), "the missing attribute")
					require.ErrorContains(w, err, st.attr.State.String())
					require.Equal(w, from.String(), p.a.qp.State().String())
				}
				require.NoError(w, p.a.qp.Modify(st.attr, st.mask))
				from = st.attr.State
			}
			return tested
		})
	}
	return tested
}

// handSuperfluous adds attributes that are not part of a step.
func handSuperfluous(w *world) outcome {
	for _, t := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		w.sub(t.String(), func(w *world) outcome {
			if w.noHand(t) {
				return noted
			}
			p := w.unconnected(pairConfig{typ: t})
			from := verbs.QPStateReset
			for i, st := range p.a.steps(p.b) {
				extra := []verbs.QPAttrMask{verbs.QPAttrSQPSN, verbs.QPAttrTimeout, verbs.QPAttrPort}[i]
				err := p.a.qp.Modify(st.attr, st.mask|extra)
				requireErr(w.T, err, verbs.ErrInvalid)
				require.ErrorContains(w, err, extra.String(), "the attribute that does not belong there")
				require.Equal(w, from.String(), p.a.qp.State().String())
				require.NoError(w, p.a.qp.Modify(st.attr, st.mask))
				from = st.attr.State
			}
			return tested
		})
	}
	return tested
}

// handWrongValues: attributes with values that no device accepts.
func handWrongValues(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.unconnected(pairConfig{})
	steps := p.a.steps(p.b)
	for _, c := range []struct {
		name string
		step int
		set  func(a *verbs.QPAttr)
	}{
		{"port 0", 0, func(a *verbs.QPAttr) { a.PortNum = 0 }},
		{"port 9", 0, func(a *verbs.QPAttr) { a.PortNum = 9 }},
		{"path port", 1, func(a *verbs.QPAttr) { a.AH.PortNum = 9 }},
		{"sgid index", 1, func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = 255 }},
		{"mtu", 1, func(a *verbs.QPAttr) { a.PathMTU = 6 }},
		{"max_rd_atomic", 2, func(a *verbs.QPAttr) { a.MaxRdAtomic = min(255, w.a.attr.MaxQPInitRdAtom+1) }},
	} {
		q := w.unconnected(pairConfig{})
		for _, st := range steps[:c.step] {
			require.NoError(w, q.a.qp.Modify(st.attr, st.mask))
		}
		before, bad := q.a.qp.State(), steps[c.step].attr
		c.set(&bad)
		err := q.a.qp.Modify(bad, steps[c.step].mask)
		require.True(w, errors.Is(err, verbs.ErrInvalid) || errors.Is(err, verbs.ErrNoGID), "%s: %v", c.name, err)
		require.Equal(w, before.String(), q.a.qp.State().String(), c.name)
		require.NoError(w, q.a.qp.Modify(steps[c.step].attr, steps[c.step].mask), c.name)
	}
	return tested
}

// handTransitions tries every transition that is not in the state diagram, from every state on the
// way.
func handTransitions(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.unconnected(pairConfig{})
	check := func(from verbs.QPState) {
		w.Helper()
		for to := verbs.QPStateReset; to <= verbs.QPStateErr; to++ {
			if verbs.CheckTransition(from, to) == nil {
				continue
			}
			err := p.a.qp.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState)
			requireErr(w.T, err, verbs.ErrState)
			require.ErrorContains(w, err, from.String())
			require.ErrorContains(w, err, to.String())
			require.Equal(w, from.String(), p.a.qp.State().String())
		}
	}
	check(verbs.QPStateReset)
	for _, st := range p.a.steps(p.b) {
		require.NoError(w, p.a.qp.Modify(st.attr, st.mask))
		check(st.attr.State)
	}
	// The QP's state differs from what the caller expects.
	err := p.a.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateRTR},
		verbs.QPAttrState|verbs.QPAttrCurState)
	requireErr(w.T, err, verbs.ErrInvalid)
	require.NoError(w, p.a.modify(verbs.QPStateErr))
	check(verbs.QPStateErr)
	return tested
}

// handAgain: after a reset, a QP can be connected to another QP.
func handAgain(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.byHand(pairConfig{})
	p.works()
	for range 2 {
		p.a.recv(1)
		require.NoError(w, p.a.modify(verbs.QPStateReset))
		p.a.idle(p.a.rcq)
		other := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
		p = &pair{world: w, a: p.a, b: other}
		p.handUp(verbs.QPStateRTS)
		p.works()
	}
	return tested
}

// handNobodyThere: the peer's QP number is wrong.
func handNobodyThere(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	by := w.byHand(pairConfig{})
	p := w.unconnected(pairConfig{})
	gone := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	steps := p.a.steps(gone)
	require.NoError(w, gone.qp.Close())
	steps[2].attr.Timeout, steps[2].attr.RetryCnt = 8, 2
	for _, st := range steps {
		require.NoError(w, p.a.qp.Modify(st.attr, st.mask))
	}
	p.a.recv(1)
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend}, verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
	wc := p.a.sent()
	require.EqualValues(w, 2, wc.ID)
	require.Equal(w, verbs.WCRetryExcErr.String(), wc.Status.String())
	p.a.flushed(p.a.scq, 3)
	p.a.flushed(p.a.rcq, 1)
	require.Equal(w, verbs.QPStateErr.String(), p.a.qp.State().String())
	by.works()
	return tested
}

// handNotReady: the peer has no receive, and the number of retries is limited.
func handNotReady(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.unconnected(pairConfig{})
	p.b.handTo(p.a, verbs.QPStateRTS)
	for _, st := range p.a.steps(p.b) {
		st.attr.RNRRetry = 1
		require.NoError(w, p.a.qp.Modify(st.attr, st.mask))
	}
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	wc := p.a.sent()
	require.EqualValues(w, 2, wc.ID)
	require.Equal(w, verbs.WCRNRRetryExcErr.String(), wc.Status.String())
	require.Equal(w, verbs.QPStateErr.String(), p.a.qp.State().String())
	return tested
}

// handDrained: a send queue is drained, an event reports it, and then the queue resumes.
func handDrained(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.byHand(pairConfig{})
	p.works()
	require.NoError(w, p.a.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD, SQDAsyncNotify: true},
		verbs.QPAttrState|verbs.QPAttrSQDAsyncNotify))
	ev, ok := w.a.eventOf(verbs.EventSQDrained, waitLimit/4)
	if !ok {
		w.without("sq-drained-event")
	} else {
		require.Same(w, p.a.qp, ev.QP)
	}
	require.Equal(w, verbs.QPStateSQD.String(), p.a.qp.State().String())
	// Requests are accepted but wait. rxe resumes only when another one is posted after the change
	// to RTS.
	p.b.recv(4)
	p.b.recv(5)
	p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	p.a.idle(p.a.scq)
	require.NoError(w, p.a.modify(verbs.QPStateRTS))
	p.a.post(verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	for i := range 2 {
		require.EqualValues(w, 3+i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		require.EqualValues(w, 4+i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	p.works()
	return tested
}

// handCommEst: an event reports that the first message arrived before the QP moved to RTS.
func handCommEst(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	p := w.unconnected(pairConfig{})
	p.b.handTo(p.a, verbs.QPStateRTR)
	p.b.recv(4)
	p.a.handTo(p.b, verbs.QPStateRTS)
	p.a.ok(p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend}), verbs.WCSend)
	p.b.ok(p.b.received(), verbs.WCRecv)
	if ev, ok := w.b.eventOf(verbs.EventCommEst, time.Second); ok {
		require.Same(w, p.b.qp, ev.QP)
	} else {
		w.without("comm-est-event")
	}
	last := p.b.steps(p.a)[2]
	require.NoError(w, p.b.qp.Modify(last.attr, last.mask))
	p.works()
	return tested
}

// handMTU tests every path MTU of the port.
func handMTU(w *world) outcome {
	if w.noHand(verbs.QPTypeRC) {
		return noted
	}
	port, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	m := w.b.alloc(10000, allRights)
	for mtu := verbs.MTU256; mtu <= port.ActiveMTU; mtu++ {
		w.sub(fmt.Sprint(mtu.Bytes()), func(w *world) outcome {
			p := w.unconnected(pairConfig{})
			for _, s := range [][2]*side{{p.a, p.b}, {p.b, p.a}} {
				for _, st := range s[0].steps(s[1]) {
					st.attr.PathMTU = mtu
					require.NoError(w, s[0].qp.Modify(st.attr, st.mask))
				}
			}
			p.exchangeWrite(&mem{m.MR, w.T}, 0, 10000)
			p.works()
			return tested
		})
	}
	return tested
}
