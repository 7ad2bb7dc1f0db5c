// SPDX-License-Identifier: BSD-3-Clause

package scenario

import "github.com/goverbs/goverbs/verbs"

// Row 24: QPs that the program connects itself, with the peer's GID and QP number.
var byHand = []*Scenario{
	{Name: "row24/by-hand", run: func(p *program) {
		a, b := p.unconnected(config{})
		a.toRTS(b, b.qp.Num())
		b.toRTS(a, a.qp.Num())
		a.put(0, "no connection manager")
		b.recv(1, 0, 64)
		a.post(verbs.SendImm(24, a.sge(0, 21)))
		b.received(1)
		a.sent(1)
		b.memory(0, 32)
		b.post(verbs.Read(a.remote(0), b.sge(64, 21)), verbs.FetchAdd(a.remote(64), 5, b.sge(128, 8)))
		b.sent(2)
		b.memory(64, 72)
		a.words(64)
	}},
	{Name: "row24/nobody-there", run: func(p *program) {
		a, b := p.unconnected(config{})
		a.tries = 1
		a.toRTS(b, b.qp.Num()) // b's QP stays in RESET
		a.recv(1, 0, 8)
		a.post(verbs.Send(a.sge(0, 8)), verbs.Write(b.remote(0), a.sge(0, 8)))
		a.sent(2)
		a.received(1)
		a.post(id(3, verbs.Send(a.sge(0, 8))))
		a.sent(1)
	}},
	{Name: "row24/peer-gone", run: func(p *program) {
		a, b := p.unconnected(config{})
		a.tries = 1
		a.toRTS(b, b.qp.Num())
		b.toRTS(a, a.qp.Num())
		b.recv(1, 0, 8)
		a.post(verbs.Send(a.sge(0, 8)))
		a.sent(1)
		b.received(1)
		b.recv(2, 0, 8)
		b.called("Modify to ERR", 0, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		b.received(1)
		a.recv(3, 0, 8) // the QP has not noticed
		a.empty("received", a.rcq)
		a.post(verbs.Send(a.sge(0, 8)), verbs.Read(b.remote(0), a.sge(8, 8)))
		a.sent(2)
		a.received(1)
	}},
	{Name: "row24/itself", run: func(p *program) {
		a, _ := p.unconnected(config{})
		a.toRTS(a, a.qp.Num())
		a.put(0, "from here to here")
		a.putWord(64, 5)
		a.post(verbs.Write(a.remote(1024), a.sge(0, 17)), verbs.Read(a.remote(1024), a.sge(2048, 17)),
			verbs.FetchAdd(a.remote(64), 3, a.sge(128, 8)), verbs.SendImm(24, a.sge(0, 17)),
			with(verbs.SendFence, verbs.Write(a.remote(4096), a.sge(128, 8))))
		a.sent(3)
		p.pause()
		a.empty("sent", a.scq)
		a.recv(1, 3072, 64)
		a.received(1)
		a.sent(2)
		for _, at := range []int{1024, 2048, 3072} {
			a.memory(at, 32)
		}
		a.words(64, 128, 4096)
	}},
	{Name: "row24/skipping-states", run: func(p *program) {
		a, _ := p.unconnected(config{})
		for _, to := range []verbs.QPState{verbs.QPStateRTR, verbs.QPStateRTS} {
			a.called("Modify", 0, a.qp.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState))
		}
		a.post(verbs.Send(a.sge(0, 8)))
	}},
}

// toRTS brings up the end's QP manually, with a QP number of the peer.
func (e *end) toRTS(peer *end, number uint32) {
	tries := uint8(7)
	if e.tries != 0 {
		tries = e.tries
	}
	row, err := e.vctx.ChooseGID(1, e.fabric.address())
	must(err)
	there, err := peer.vctx.ChooseGID(1, e.fabric.address())
	must(err)
	port, err := peer.vctx.QueryPort(1)
	must(err)
	for _, s := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1,
			AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic},
			verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
		{verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPNum: number, RQPSN: 7, MaxDestRdAtomic: 4,
			MinRNRTimer: 12,
			AH: verbs.AHAttr{IsGlobal: true, PortNum: 1, DLID: port.LID,
				GRH: verbs.GlobalRoute{DGID: there.GID, SGIDIndex: uint8(row.Index), HopLimit: 64}}},
			verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
				verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 7, Timeout: 14, RetryCnt: tries, RNRRetry: 7, MaxRdAtomic: 4},
			verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
				verbs.QPAttrMaxRdAtomic},
	} {
		e.called("Modify to "+s.attr.State.String(), 0, e.qp.Modify(s.attr, s.mask|verbs.QPAttrState))
	}
}
