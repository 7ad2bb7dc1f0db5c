// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

const (
	messageSize = 256 // bytes of a request or a response
	maxClients  = 64
	// in the shared receive queue: at least one for each request that clients may have in progress
	receives    = 128
	sends       = 2               // responses that one client may have in progress
	lastAnswers = 3 * time.Second // for these to arrive when the server shuts down
)

// server holds what all connections share.
type server struct {
	d       *verbs.Dispatcher
	pd      *verbs.PD
	srq     *verbs.SRQ
	buffers *verbs.MR

	mu      sync.Mutex // guards clients
	clients map[uint32]chan message
}

// message is a request in the i-th buffer.
type message struct{ i, length int }

// serve answers requests with procedure until ctx is done.
func serve(ctx context.Context, ln *cm.Listener, procedure func(request []byte) []byte) error {
	vctx := ln.Context()
	pd, err := vctx.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	buffers, err := pd.AllocMR(receives*messageSize, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	defer buffers.Close()
	cq, err := vctx.CreateCQ(verbs.CQConfig{CQE: receives + maxClients*sends})
	if err != nil {
		return err
	}
	defer cq.Close()
	srq, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: receives})
	if err != nil {
		return err
	}
	defer srq.Close()
	d, err := verbs.NewDispatcher(cq, verbs.DispatcherConfig{})
	if err != nil {
		return err
	}
	if err := d.Reserve(receives); err != nil { // the endpoints reserve what their sends need
		return err
	}
	s := &server{d: d, pd: pd, srq: srq, buffers: buffers, clients: make(map[uint32]chan message)}
	for i := range receives {
		if err := s.post(i); err != nil {
			return err
		}
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { d.Run(ctx) }) // calls s.received
	for {
		req, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		// Errors of one client do not affect the others.
		wg.Go(func() { s.client(ctx, req, procedure) })
	}
}

// post posts the receive with the i-th buffer.
func (s *server) post(i int) error {
	sge, err := s.buffers.SGE(i*messageSize, messageSize)
	if err != nil {
		return err
	}
	_, err = s.d.PostSRQRecv(s.srq, []verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{sge}}}, s.received)
	return err
}

// received passes a request to its client's goroutine. It must not block, because the dispatcher
// calls it: the channel has room for all buffers.
func (s *server) received(wc *verbs.WC) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[wc.QPNum]
	if wc.Err() != nil || c == nil { // of a connection that has ended
		s.post(int(wc.ID))
		return
	}
	c <- message{int(wc.ID), int(wc.ByteLen)}
}

// client serves one connection.
func (s *server) client(ctx context.Context, req *cm.Request, procedure func([]byte) []byte) error {
	requests := make(chan message, receives)
	var num uint32
	ep, err := req.AcceptEndpoint(ctx, cm.EndpointConfig{
		PD: s.pd, Dispatcher: s.d, SRQ: s.srq,
		Cap:         verbs.QPCap{MaxSendWR: sends},
		MessageSize: messageSize, Messages: sends,
		// The client may send as soon as it is connected.
		Prepare: func(ep *cm.Endpoint, p *cm.ConnParam) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			num = ep.QP().Num()
			s.clients[num] = requests
			return nil
		},
	})
	defer s.forget(num, requests)
	if err != nil {
		return err
	}
	defer ep.Close()
	for {
		select {
		case m := <-requests:
			answer := procedure(s.buffers.Bytes()[m.i*messageSize:][:m.length])
			if err := errors.Join(ep.Send(ctx, answer), s.post(m.i)); err != nil {
				return err
			}
		case <-ep.ID().Done():
			return ep.ID().Err()
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
			defer cancel()
			return ep.Shutdown(ctx)
		}
	}
}

// forget removes a client and posts the buffers of its unanswered requests again.
func (s *server) forget(num uint32, requests chan message) {
	s.mu.Lock()
	delete(s.clients, num)
	s.mu.Unlock()
	for {
		select {
		case m := <-requests:
			s.post(m.i)
		default:
			return
		}
	}
}
