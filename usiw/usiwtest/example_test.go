// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// A service and its client, neither of which knows about the wire, communicate over it; the
// connection breaks in the middle of the client's request.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	wire := usiwtest.NewWire()
	server, err := usiw.New(usiw.Config{Network: wire})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := usiw.New(usiw.Config{Network: wire})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stop, err := serve(ctx, "service:7306", server.Device())
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	wire.OnDial = func(l *usiwtest.Link) { l.ToListener.CutAt(60) }
	fmt.Println(call(ctx, "service:7306", client.Device()))
	wire.OnDial = nil
	fmt.Println(call(ctx, "service:7306", client.Device()))
	// Output:
	// Work Request Flushed Error
	// <nil>
}

// Two connected QPs: the first writes into the memory of the second, and a bit of the message is
// corrupted on the way.
func ExampleNewPair() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	toB := p.Link.ToListener
	toB.Corrupt(toB.Written()+20, 0x08)
	src, _ := p.A.MR.SGE(0, 100)
	wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{src},
		RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey()})
	fmt.Println(wc.Status, err)
	<-p.A.ID.Done()
	fmt.Println(p.A.QP.Err())
	// Output:
	// success <nil>
	// terminated by peer: MPA error: CRC mismatch (2/0/02)
}

// A's second Send cannot be built.
func ExampleFailBuild() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{
		A:      usiw.Config{Hooks: usiwtest.FailBuild(rdmap.OpSend, 2)},
		Before: func(p *usiwtest.Pair) error { _, err := p.B.QP.PostRecv(make([]verbs.RecvWR, 2)); return err },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRSend})
		fmt.Println(wc.Status, err)
	}
	// Output:
	// success <nil>
	// local QP operation error <nil>
}

// serve answers every request of one connection after another, until stop is called.
func serve(ctx context.Context, address string, dev *verbs.Device) (stop func(), err error) {
	ln, err := cm.Listen(ctx, address, cm.Config{Device: dev})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			e, err := newEndpoint(req.Context())
			if err != nil {
				return
			}
			if id, err := req.Accept(ctx, e.qp, cm.ConnParam{}); err == nil {
				<-id.Done()
				id.Close()
			}
			e.close()
		}
	}()
	return func() { ln.Close(); <-done }, nil
}

// call sends one request and returns its outcome.
func call(ctx context.Context, address string, dev *verbs.Device) error {
	id, err := cm.Resolve(ctx, address, cm.Config{Device: dev})
	if err != nil {
		return err
	}
	defer id.Close()
	e, err := newEndpoint(id.Context())
	if err != nil {
		return err
	}
	defer e.close()
	if err := id.Connect(ctx, e.qp, cm.ConnParam{}); err != nil {
		return err
	}
	// A Read of length 0: the response shows that the peer is alive.
	if _, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}}); err != nil {
		return err
	}
	wc, err := usiwtest.Next(ctx, e.cq)
	if err != nil {
		return err
	}
	return wc.Err()
}

type endpoint struct {
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP
}

func newEndpoint(c *verbs.Context) (e endpoint, err error) {
	if e.pd, err = c.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = c.CreateCQ(verbs.CQConfig{}); err != nil {
		return e, err
	}
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq})
	return e, err
}

func (e endpoint) close() {
	e.qp.Close()
	e.cq.Close()
	e.pd.Close()
}
