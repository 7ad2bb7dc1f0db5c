// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// The tests in this file are small programs of the kinds that endpoints are made for.

// TestEndpointCache: 100 clients read from the memory of a server, whose program does nothing.
func TestEndpointCache(t *testing.T) {
	const clients, entries, size = 100, 64, 32
	ctx, dev := within(t), usiwDevice(t)
	ln := listener(t, dev)
	vctx, err := dev.SharedContext()
	require.NoError(t, err)
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	cache, err := pd.AllocMR(entries*size, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	require.NoError(t, err)
	defer func() { require.NoError(t, cache.Close()) }()
	for i := range entries {
		copy(cache.Bytes()[i*size:], fmt.Sprintf("entry %d", i))
	}
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{PD: pd, MR: cache, Offer: true, Messages: cm.None})
			if err != nil {
				return err
			}
			if _, err = ep.Recv(ctx, nil); errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, ep.Close())
		})
	}
	for i := range clients {
		group.Go(func() (err error) {
			ep, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: dev},
				cm.EndpointConfig{Memory: size, Messages: cm.None})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, ep.Close()) }()
			server, err := verbs.ParseRemote(ep.PrivateData())
			if err != nil {
				return err
			}
			into, err := ep.MR().SGE(0, size)
			if err != nil {
				return err
			}
			for n := range 20 {
				n = (n*7 + i) % entries
				from, err := server.Slice(n*size, size)
				if err != nil {
					return err
				}
				if _, err := ep.Do(ctx, verbs.Read(from, into)); err != nil {
					return err
				}
				if want := fmt.Sprintf("entry %d", n); string(ep.MR().Bytes()[:len(want)]) != want {
					return fmt.Errorf("%q instead of %q", ep.MR().Bytes(), want)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// rpcServer answers the requests of many clients. Its receives are in one SRQ, and all completions
// in one CQ.
type rpcServer struct {
	d   *verbs.Dispatcher
	srq *verbs.SRQ
	mr  *verbs.MR
	qps map[uint32]*verbs.QP // by number; while the dispatcher runs, only its functions use it

	buffers int   // one per client, which waits for its answer before the next request
	err     error // what went wrong; to be read once the dispatcher has stopped
}

const rpcSize = 16

// receive posts a receive into a buffer.
func (s *rpcServer) receive(buf uint64) error {
	sge, err := s.mr.SGE(int(buf)*rpcSize, rpcSize)
	if err == nil {
		_, err = s.d.PostSRQRecv(s.srq, []verbs.RecvWR{{ID: buf, SGL: []verbs.SGE{sge}}}, s.serve)
	}
	return err
}

// serve answers a request after it has posted the request's buffer again: nothing orders the
// completion of an answer and the client's next request, so posting the buffer on that completion
// could be too late. The answer is inline: it needs no memory until it completes.
func (s *rpcServer) serve(wc *verbs.WC) {
	if wc.Err() != nil {
		return
	}
	request := binary.BigEndian.Uint64(s.mr.Bytes()[wc.ID*rpcSize:])
	err := s.receive(wc.ID)
	answer := s.mr.Bytes()[s.buffers*rpcSize:][:8]
	binary.BigEndian.PutUint64(answer, 2*request)
	sge, _ := s.mr.SGE(s.buffers*rpcSize, len(answer))
	wr := verbs.Send(sge)
	wr.Flags |= verbs.SendInline
	_, sent := s.d.PostSend(s.qps[wc.QPNum], []verbs.SendWR{wr}, func(*verbs.WC) {})
	s.err = errors.Join(s.err, err, sent)
}

// TestEndpointRPC: one goroutine serves many clients.
func TestEndpointRPC(t *testing.T) {
	const clients, rounds, buffers = 20, 20, 20
	ctx, dev := within(t), usiwDevice(t)
	vctx, err := dev.SharedContext()
	require.NoError(t, err)
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	cq, err := vctx.CreateCQ(verbs.CQConfig{CQE: buffers + clients*rounds})
	require.NoError(t, err)
	s := &rpcServer{qps: map[uint32]*verbs.QP{}, buffers: buffers}
	s.d, err = verbs.NewDispatcher(cq, verbs.DispatcherConfig{})
	require.NoError(t, err)
	s.srq, err = pd.CreateSRQ(verbs.SRQAttr{MaxWR: buffers})
	require.NoError(t, err)
	s.mr, err = pd.AllocMR((buffers+1)*rpcSize, verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.NoError(t, s.d.Reserve(buffers))
	for i := range uint64(buffers) {
		require.NoError(t, s.receive(i))
	}
	var peers, ends []*cm.Endpoint
	for range clients {
		a, b := endpoints(t, dev, cm.EndpointConfig{Messages: 2, MessageSize: rpcSize},
			cm.EndpointConfig{PD: pd, Dispatcher: s.d, SRQ: s.srq, Messages: cm.None,
				Cap: verbs.QPCap{MaxSendWR: rounds, MaxInlineData: rpcSize}})
		_, err := b.Recv(ctx, nil)
		require.ErrorIs(t, err, verbs.ErrInvalid, "the receives are in the SRQ")
		peers, ends = append(peers, a), append(ends, b)
		s.qps[b.QP().Num()] = b.QP()
	}
	run, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.d.Run(run) }()
	var group errgroup.Group
	for i, ep := range peers {
		group.Go(func() error {
			p := make([]byte, rpcSize)
			for n := range rounds {
				question := uint64(1000*i + n)
				if err := ep.Send(ctx, binary.BigEndian.AppendUint64(nil, question)); err != nil {
					return err
				}
				wc, err := ep.Recv(ctx, p)
				if err != nil {
					return err
				}
				if answer := binary.BigEndian.Uint64(p); wc.ByteLen != 8 || answer != 2*question {
					return fmt.Errorf("%d bytes, %d for %d", wc.ByteLen, answer, question)
				}
			}
			return ep.Shutdown(ctx)
		})
	}
	require.NoError(t, group.Wait())
	for _, ep := range ends {
		require.NoError(t, ep.Close())
	}
	stop()
	require.ErrorIs(t, <-ran, context.Canceled)
	require.NoError(t, s.err)
	require.NoError(t, errors.Join(s.srq.Close(), s.mr.Close(), cq.Close(), pd.Close()))
}
