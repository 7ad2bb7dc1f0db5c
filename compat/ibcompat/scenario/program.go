// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// program is a scenario running on a fabric. A scenario is written in terms of its methods and
// those of its ends, which record what they observe in the trace. A single goroutine runs it.
type program struct {
	ctx    context.Context
	fabric Fabric
	trace  Trace
	hosts  [2]host // of the active and of the passive ends
	ends   []*end
	ln     *cm.Listener
}

// host holds what all ends of a side share.
type host struct {
	vctx *verbs.Context
	pd   *verbs.PD
}

func (p *program) add(e Event) { p.trace = append(p.trace, e) }

// fact adds a finding of the scenario itself to the trace.
func (p *program) fact(name string, format string, args ...any) {
	p.add(Event{End: "both", Kind: "fact", Name: name, Data: fmt.Sprintf(format, args...)})
}

// close closes everything without tracing it.
func (p *program) close() (err error) {
	for _, e := range p.ends {
		if e.id != nil {
			_ = e.id.Close() // the trace already has what is visible of the end
		}
	}
	err = p.ln.Close()
	for _, h := range p.hosts {
		if h.vctx != nil {
			err = errors.Join(err, h.vctx.CloseAll())
		}
	}
	return err
}

// config configures the ends of a pair; zero values are the defaults.
type config struct {
	memory   int // in bytes (0 = 64 KiB)
	cap      verbs.QPCap
	channels bool // give the receive CQs channels of their own, for end.event
	active   cm.ConnParam
	passive  cm.ConnParam
	before   func(a, b *end) // called when both QPs are in INIT
}

// rights are the access rights of each end's memory.
const rights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// end is one end of a pair. Sends and receives complete into separate CQs, so that the order in
// each is deterministic.
type end struct {
	*program
	host
	name     string
	mr       *verbs.MR
	scq, rcq *verbs.CQ
	ch       *verbs.CompChannel // of rcq; nil = created by the CQ itself
	qp       *verbs.QP
	id       *cm.ID
	peer     *end
	tries    uint8 // retry_cnt of a QP brought up manually (0 = 7)
}

// pair returns two connected ends.
func (p *program) pair(cfg config) (a, b *end) {
	a, b = p.unconnected(cfg)
	must(a.connect(b, cfg))
	return a, b
}

// unconnected returns two ends whose QPs are in RESET.
func (p *program) unconnected(cfg config) (a, b *end) {
	n := ""
	if len(p.ends) > 0 {
		n = strconv.Itoa(len(p.ends)/2 + 1)
	}
	a, b = p.end("active"+n, p.host(0, p.fabric.Active), cfg), p.end("passive"+n, p.host(1, p.fabric.Passive), cfg)
	a.peer, b.peer = b, a
	return a, b
}

func (p *program) host(side int, dev *verbs.Device) host {
	h := &p.hosts[side]
	if h.vctx == nil {
		var err error
		h.vctx, err = dev.Open()
		must(err)
		h.pd, err = h.vctx.AllocPD()
		must(err)
	}
	return *h
}

func (p *program) end(name string, h host, cfg config) *end {
	e := &end{program: p, host: h, name: name}
	p.ends = append(p.ends, e)
	var err error
	if cfg.memory == 0 {
		cfg.memory = 64 << 10
	}
	e.mr, err = e.pd.AllocMR(cfg.memory, rights)
	must(err)
	if cfg.channels {
		e.ch, err = e.vctx.CreateCompChannel()
		must(err)
	}
	e.scq, err = e.vctx.CreateCQ(verbs.CQConfig{CQE: 512})
	must(err)
	e.rcq, err = e.vctx.CreateCQ(verbs.CQConfig{CQE: 512, Channel: e.ch})
	must(err)
	if cfg.cap == (verbs.QPCap{}) {
		cfg.cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}
	}
	e.newQP(cfg.cap)
	return e
}

func (e *end) newQP(cap verbs.QPCap) {
	var err error
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, Cap: cap})
	must(err)
}

// listen opens the listener of the passive ends.
func (p *program) listen(b *end) {
	if p.ln == nil {
		var err error
		open := func() { p.ln, err = cm.Listen(p.ctx, p.fabric.Listen, cm.Config{Context: b.vctx}) }
		if p.fabric.Host == nil {
			open()
		} else {
			p.fabric.Host(open)
		}
		must(err)
	}
}

// resolve resolves the listener's address.
func (a *end) resolve() {
	var err error
	a.id, err = cm.Resolve(a.ctx, a.ln.Addr().String(), cm.Config{Context: a.vctx, Source: a.fabric.Source})
	must(err)
}

// connect connects two ends and returns the error of Connect or Accept.
func (a *end) connect(b *end, cfg config) error {
	a.listen(b)
	a.resolve()
	must(a.id.BindQP(a.qp))
	must(cmprovider.InitQP(b.qp))
	if cfg.before != nil {
		cfg.before(a, b)
	}
	connected := make(chan error, 1)
	id, qp, param := a.id, a.qp, cfg.active
	go func() { connected <- id.Connect(a.ctx, qp, param) }()
	req, err := a.ln.Accept(a.ctx)
	if err != nil {
		return errors.Join(err, <-connected)
	}
	b.id, err = req.Accept(b.ctx, b.qp, cfg.passive)
	return errors.Join(err, <-connected)
}

// sge returns an element with n bytes of the end's memory.
func (e *end) sge(off, n int) verbs.SGE {
	s, err := e.mr.SGE(off, n)
	must(err)
	return s
}

// remote returns the end's memory from off on, as the peer addresses it.
func (e *end) remote(off int) verbs.Remote {
	r := e.mr.Remote()
	return verbs.Remote{Addr: r.Addr + uint64(off), Length: r.Length - uint64(off), RKey: r.RKey}
}

// put stores text in the end's memory.
func (e *end) put(off int, text string) { regmem.Place(e.mr.Bytes()[off:][:len(text)], []byte(text)) }

// fill stores n varying bytes, which depend on seed, in the end's memory.
func (e *end) fill(off, n int, seed byte) {
	mem := e.mr.Bytes()[off:][:n]
	var chunk [4096]byte
	for at := 0; at < n; at += len(chunk) {
		part := chunk[:min(len(chunk), n-at)]
		for i := range part {
			part[i] = byte((at+i)*7) + byte((at+i)>>8) + byte((at+i)>>16) + seed
		}
		regmem.Place(mem[at:], part)
	}
}

// memory adds n bytes of the end's memory to the trace.
func (e *end) memory(off, n int) {
	b := make([]byte, n)
	regmem.Fetch(b, e.mr.Bytes()[off:][:n])
	e.add(Event{End: e.name, Kind: "memory", Name: strconv.Itoa(off), Data: data(b)})
}

// called adds the result of a call to the trace.
func (e *end) called(name string, n int, err error) {
	e.add(Event{End: e.name, Kind: "call", Name: name, Count: n, Error: sentinel(err)})
}

// id sets the ID of a request.
func id(n uint64, wr verbs.SendWR) verbs.SendWR {
	wr.ID = n
	return wr
}

// with adds flags to a request.
func with(flags verbs.SendFlags, wr verbs.SendWR) verbs.SendWR {
	wr.Flags |= flags
	return wr
}

// quiet makes a request unsignaled.
func quiet(wr verbs.SendWR) verbs.SendWR {
	wr.Flags &^= verbs.SendSignaled
	return wr
}

// post posts requests. Those without an ID get consecutive IDs from 1 on.
func (e *end) post(wrs ...verbs.SendWR) {
	for i := range wrs {
		if wrs[i].ID == 0 {
			wrs[i].ID = uint64(i + 1)
		}
	}
	n, err := e.qp.PostSend(wrs)
	e.called("PostSend", n, err)
}

// recv posts a receive with n bytes of memory at off, or without memory if n is 0.
func (e *end) recv(wrID uint64, off, n int) {
	wr := verbs.RecvWR{ID: wrID}
	if n > 0 {
		wr.SGL = []verbs.SGE{e.sge(off, n)}
	}
	k, err := e.qp.PostRecv([]verbs.RecvWR{wr})
	e.called("PostRecv", k, err)
}

// sent and received add the next n completions to the trace.
func (e *end) sent(n int)     { e.completions("sent", e.scq, n) }
func (e *end) received(n int) { e.completions("received", e.rcq, n) }

func (e *end) completions(kind string, cq *verbs.CQ, n int) {
	for range n {
		wc := e.next(kind, cq)
		e.add(e.completion(kind, &wc))
	}
}

// next waits for a completion.
func (e *end) next(kind string, cq *verbs.CQ) verbs.WC {
	var wcs [1]verbs.WC
	for {
		n, err := 0, error(nil)
		if e.ch != nil && cq == e.rcq { // CQ.Wait needs a CQ created without Channel
			if n, err = cq.Poll(wcs[:]); n == 0 && err == nil && e.ctx.Err() == nil {
				time.Sleep(100 * time.Microsecond)
				continue
			}
			if n == 0 && err == nil {
				err = e.ctx.Err()
			}
		} else {
			n, err = cq.Wait(e.ctx, wcs[:])
		}
		if err != nil {
			e.add(Event{End: e.name, Kind: kind, Error: sentinel(err)})
			panic(failure{}) // the trace ends here
		}
		if n > 0 {
			return wcs[0]
		}
	}
}

// completion returns an event with the defined fields of a completion.
func (e *end) completion(kind string, wc *verbs.WC) Event {
	ev := Event{End: e.name, Kind: kind, ID: wc.ID, Status: wc.Status.String()}
	if wc.Status != verbs.WCSuccess {
		return ev
	}
	ev.Opcode = wc.Opcode.String()
	if kind == "received" {
		ev.Bytes = wc.ByteLen
		if wc.Flags&verbs.WCWithImm != 0 {
			ev.Imm = fmt.Sprintf("%#x", wc.Imm)
		}
	}
	return ev
}

// empty polls a CQ that should be empty, and adds the result to the trace.
func (e *end) empty(kind string, cq *verbs.CQ) {
	var wcs [1]verbs.WC
	n, err := cq.Poll(wcs[:])
	e.called("Poll "+kind, n, err)
}

// disconnect closes the connection from this end.
func (e *end) disconnect() { e.called("Disconnect", 0, e.id.Disconnect()) }

// ended waits until the connection has ended, and adds that to the trace. The reason is
// deterministic only for a disconnect; see disconnected.
func (e *end) ended() {
	select {
	case <-e.id.Done():
		e.add(Event{End: e.name, Kind: "fact", Name: "ended"})
	case <-e.ctx.Done():
		e.add(Event{End: e.name, Kind: "fact", Name: "ended", Error: sentinel(e.ctx.Err())})
		panic(failure{})
	}
}

// disconnected waits until the connection has ended after a disconnect by either end, and adds the
// reason.
func (e *end) disconnected() {
	e.ended()
	e.called("Err", 0, e.id.Err())
}

// word returns the 8 bytes at off as a number.
func (e *end) word(off int) uint64 {
	var b [8]byte
	regmem.Fetch(b[:], e.mr.Bytes()[off:][:8])
	return binary.NativeEndian.Uint64(b[:])
}

// putWord stores a number in the 8 bytes at off.
func (e *end) putWord(off int, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	regmem.Place(e.mr.Bytes()[off:][:8], b[:])
}

// words adds 8-byte words of the end's memory to the trace.
func (e *end) words(offs ...int) {
	for _, off := range offs {
		e.add(Event{End: e.name, Kind: "memory", Name: strconv.Itoa(off), Data: fmt.Sprintf("%#x", e.word(off))})
	}
}

// wrongKey returns the end's memory with an invalid key.
func (e *end) wrongKey(off int) verbs.Remote {
	r := e.remote(off)
	r.RKey ^= 0x5a5a5a00
	return r
}

// pause gives the other end time to misbehave. Without it a scenario has the same trace.
func (p *program) pause() { time.Sleep(50 * time.Millisecond) }
