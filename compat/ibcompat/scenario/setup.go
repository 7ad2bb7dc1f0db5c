// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Row 10: which end sends first. Row 11: private data.
var setup = []*Scenario{
	{Name: "row10/passive-first", run: func(p *program) {
		a, b := p.pair(config{before: func(a, _ *end) { a.recv(1, 0, 64) }})
		b.put(0, "from the passive end")
		b.post(verbs.Send(b.sge(0, 20)))
		b.sent(1)
		a.received(1)
		a.memory(0, 32)
	}},
	{Name: "row10/passive-reads-first", run: func(p *program) {
		a, b := p.pair(config{})
		a.put(0, "read")
		b.post(verbs.Read(a.remote(0), b.sge(0, 4)), verbs.FetchAdd(a.remote(64), 3, b.sge(8, 8)))
		b.sent(2)
		b.memory(0, 16)
		a.words(64)
	}},
	{Name: "row10/both-before-receives", run: func(p *program) {
		a, b := p.pair(config{})
		for i := range 8 {
			a.fill(1024*i, 1024, byte(i))
			b.fill(1024*i, 1024, byte(16+i))
			a.post(id(uint64(i)+1, verbs.Send(a.sge(1024*i, 1024))))
			b.post(id(uint64(i)+1, verbs.SendImm(uint32(i), b.sge(1024*i, 1024))))
		}
		p.pause()
		a.empty("sent", a.scq)
		for i := range 8 {
			a.recv(uint64(i), 16384+1024*i, 1024)
			b.recv(uint64(i), 16384+1024*i, 1024)
		}
		a.received(8)
		b.received(8)
		a.sent(8)
		b.sent(8)
		a.memory(16384, 8192)
		b.memory(16384, 8192)
	}},
	{Name: "row10/before-established", run: func(p *program) {
		a, _ := p.unconnected(config{})
		a.post(verbs.Send(a.sge(0, 8)))
		a.recv(1, 0, 8)
	}},
	{Name: "row11/private-data", run: func(p *program) {
		a, b := p.pair(config{active: cm.ConnParam{PrivateData: []byte("from the active end")},
			passive: cm.ConnParam{PrivateData: []byte{1, 0, 2}}})
		a.private(a.id.PrivateData())
		b.private(b.id.PrivateData())
	}},
	{Name: "row11/most", run: func(p *program) {
		most := make([]byte, 48)
		for i := range most {
			most[i] = byte(i + 1)
		}
		a, b := p.pair(config{active: cm.ConnParam{PrivateData: most}, passive: cm.ConnParam{PrivateData: most}})
		a.private(a.id.PrivateData())
		b.private(b.id.PrivateData())
	}},
	{Name: "row11/none", run: func(p *program) {
		a, b := p.pair(config{})
		a.private(a.id.PrivateData())
		b.private(b.id.PrivateData())
	}},
	{Name: "row11/too-long", run: func(p *program) {
		a, b := p.unconnected(config{})
		a.listen(b)
		a.resolve()
		a.called("Connect", 0, a.id.Connect(p.ctx, a.qp, cm.ConnParam{PrivateData: make([]byte, 49)}))
	}},
	{Name: "row11/refused", run: func(p *program) {
		a, b := p.unconnected(config{})
		a.listen(b)
		a.resolve()
		connected := make(chan error, 1)
		go func() { connected <- a.id.Connect(p.ctx, a.qp, cm.ConnParam{PrivateData: []byte("may I?")}) }()
		req, err := p.ln.Accept(p.ctx)
		must(err)
		b.private(req.PrivateData())
		b.called("Reject", 0, req.Reject([]byte("no")))
		err = <-connected
		a.called("Connect", 0, err)
		if rejected := new(cm.RejectedError); errors.As(err, &rejected) {
			a.private(rejected.PrivateData)
		}
	}},
}

// private adds private data to the trace.
func (e *end) private(b []byte) {
	e.add(Event{End: e.name, Kind: "memory", Name: "private data", Count: len(b), Data: data(b)})
}
