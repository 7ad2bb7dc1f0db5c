// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// endpoints connects two endpoints.
func (b *bench) endpoints(active, passive cm.EndpointConfig) (a, p *cm.Endpoint) {
	b.Helper()
	accepted := make(chan error, 1)
	go func() {
		var err error
		p, err = b.ln.AcceptEndpoint(soon(b.T), passive)
		accepted <- err
	}()
	a, err := cm.Dial(soon(b.T), b.ln.Addr().String(), cm.Config{Context: b.vctx}, active)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, a.Close()) })
	require.NoError(b, b.outcome(accepted))
	b.Cleanup(func() { require.NoError(b, p.Close()) })
	return a, p
}

// TestKernelEndpoint: messages and Writes arrive, and Shutdown reads from the peer if there is no
// other confirmation.
func TestKernelEndpoint(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.Loopback(true)
		ctx := soon(b.T)
		a, p := b.endpoints(cm.EndpointConfig{Param: cm.ConnParam{PrivateData: []byte("question")}},
			cm.EndpointConfig{Memory: 8, Access: verbs.AccessRemoteWrite, Offer: true,
				Param: cm.ConnParam{PrivateData: []byte("answer")}})
		require.Equal(b, "question", string(p.PrivateData()[:8]))
		to, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(b, err)
		require.Equal(b, p.MR().Remote(), to)
		require.Equal(b, "answer", string(a.PrivateData()[verbs.RemoteLen:][:6]))
		if b.iwarp() { // InfiniBand pads private data
			require.Len(b, p.PrivateData(), 8, "without those of the endpoint")
			require.Len(b, a.PrivateData(), verbs.RemoteLen+6)
			require.Len(b, p.ID().PrivateData(), 8+cm.FenceLen)
		}
		buf := make([]byte, 8)
		require.NoError(b, a.Send(ctx, []byte("message")))
		wc, err := p.Recv(ctx, buf)
		require.NoError(b, err)
		require.Equal(b, "message", string(buf[:wc.ByteLen]))
		mr, err := a.PD().AllocMR(8, 0)
		require.NoError(b, err)
		defer func() { require.NoError(b, mr.Close()) }()
		copy(mr.Bytes(), "contents")
		sge, err := mr.SGE(0, 8)
		require.NoError(b, err)
		_, err = a.Do(ctx, verbs.Write(to, sge))
		require.NoError(b, err)
		require.Equal(b, "contents", string(p.MR().Bytes()))

		require.NoError(b, a.Shutdown(ctx))
		var reads []fakeverbs.WR
		for _, wr := range fakeverbs.Posted() {
			if wr.Opcode == uint32(verbs.WRRDMARead) {
				reads = append(reads, wr)
			}
		}
		if !b.iwarp() {
			require.Empty(b, reads)
		} else {
			require.Len(b, reads, 1)
			require.NotZero(b, reads[0].SGEs[0].Length, "siw answers a Read of 0 bytes wrongly")
		}
		_, err = p.Recv(ctx, buf)
		require.ErrorIs(b, err, io.EOF)
		require.NoError(b, a.Shutdown(ctx), "again")
		require.NoError(b, p.Shutdown(ctx), "there was nothing to confirm")
	})
}

// TestKernelShutdownBoth: the two sides negotiate in private data even where these are padded, each
// writes one word of the other's memory, and both get nil.
func TestKernelShutdownBoth(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.Loopback(true)
		ctx := soon(b.T)
		cfg := cm.EndpointConfig{Messages: 2, ShutdownBoth: true, Param: cm.ConnParam{PrivateData: []byte("ours")}}
		a, p := b.endpoints(cfg, cfg)
		require.Equal(b, "ours", string(a.PrivateData()), "without the padding")
		require.Equal(b, "ours", string(p.PrivateData()))
		require.NoError(b, a.Send(ctx, []byte("1")))
		require.NoError(b, p.Send(ctx, []byte("2")))
		ended := make(chan error, 1)
		go func() { ended <- a.Shutdown(ctx) }()
		require.NoError(b, p.Shutdown(ctx))
		require.NoError(b, b.outcome(ended))
		reads, writes := 0, 0
		for _, wr := range fakeverbs.Posted() {
			switch {
			case !wr.Recv && wr.Opcode == uint32(verbs.WRRDMARead):
				reads++
			case !wr.Recv && wr.Opcode == uint32(verbs.WRRDMAWrite) && len(wr.SGEs) == 1:
				// The Write by which siw's initiator sends first has no elements.
				writes++
			}
		}
		require.Equal(b, 2, writes)
		require.Equal(b, b.iwarp(), reads > 0, "InfiniBand confirms Sends")
		var got [1]byte
		_, err := a.Recv(ctx, got[:])
		require.NoError(b, err)
		require.Equal(b, "2", string(got[:]))
	})
}

// TestKernelEndpointSendOps: an endpoint can request a QP with Atomic Writes.
func TestKernelEndpointSendOps(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.Loopback(true)
		attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
		attr.CapFlags |= uint64(verbs.DeviceAtomicWrite)
		fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
		vctx, err := b.dev.Open()
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, vctx.Close()) })
		asks := cm.EndpointConfig{SendOps: verbs.MakeOpSet(verbs.OpAtomicWrite)}
		if b.iwarp() {
			_, err := cm.Dial(soon(b.T), b.ln.Addr().String(), cm.Config{Context: vctx}, asks)
			require.ErrorIs(b, err, verbs.ErrNotSupported)
			require.ErrorContains(b, err, "atomic-write")
			return
		}
		on := *b
		on.vctx = vctx
		a, p := on.endpoints(asks, cm.EndpointConfig{Memory: 8, Access: verbs.AccessRemoteWrite, Offer: true})
		to, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(b, err)
		wc, err := a.Do(soon(b.T), verbs.AtomicWrite(to, 77))
		require.NoError(b, err)
		require.Equal(b, verbs.WCAtomicWrite, wc.Opcode)
		word, err := p.MR().Word(0)
		require.NoError(b, err)
		require.EqualValues(b, 77, word.Load())
	})
}

// TestKernelEndpointPortTaken: librdmacm may select a local port that is in use.
func TestKernelEndpointPortTaken(t *testing.T) {
	eachFake(t, func(b *bench) {
		dial := func(cfg cm.Config, ecfg cm.EndpointConfig) error {
			ctx, cancel := context.WithCancel(soon(b.T))
			accepted := make(chan error, 1)
			go func() {
				p, err := b.ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
				accepted <- errors.Join(err, p.Close())
			}()
			cfg.Context = b.vctx
			ep, err := cm.Dial(soon(b.T), b.ln.Addr().String(), cfg, ecfg)
			if err != nil {
				cancel()
				require.ErrorIs(b, b.outcome(accepted), context.Canceled)
				return err
			}
			require.NoError(b, b.outcome(accepted))
			cancel()
			return ep.Close()
		}
		for _, errno := range []syscall.Errno{syscall.EADDRINUSE, syscall.EADDRNOTAVAIL} {
			before := fakeverbs.Calls("rdma_connect")
			fakeverbs.Fail("rdma_connect", 1, errno)
			require.NoError(b, dial(cm.Config{}, cm.EndpointConfig{}))
			require.Equal(b, before+2, fakeverbs.Calls("rdma_connect"))
			for nth := range 8 {
				fakeverbs.Fail("rdma_connect", nth+1, errno)
			}
			require.ErrorIs(b, dial(cm.Config{}, cm.EndpointConfig{}), errno)
			require.Equal(b, before+2+8, fakeverbs.Calls("rdma_connect"))
		}
		fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
		require.ErrorIs(b, dial(cm.Config{Source: netip.MustParseAddrPort(b.ip + ":4791")}, cm.EndpointConfig{}),
			syscall.EADDRINUSE, "the port that was asked for")
		fakeverbs.Fail("rdma_connect", 1, syscall.ECONNREFUSED)
		require.ErrorIs(b, dial(cm.Config{}, cm.EndpointConfig{}), syscall.ECONNREFUSED)
	})
}

// TestKernelEndpointStepFails: whichever call fails, the error says so and nothing is left open.
func TestKernelEndpointStepFails(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.Loopback(true)
		cfg := cm.EndpointConfig{Memory: 64, Offer: true}
		objects := func() int { return len(lifetime.Live()) }
		failed := 0
		for _, call := range []string{"rdma_resolve_addr", "rdma_resolve_route", "ibv_alloc_pd", "ibv_reg_mr",
			"ibv_reg_mr_iova2", "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_modify_qp",
			"rdma_init_qp_attr", "ibv_post_recv", "rdma_connect",
			"rdma_accept"} {
			for nth := 1; nth <= 4; nth++ {
				before, c := objects(), fakeverbs.Live()
				ctx, cancel := context.WithCancel(soon(b.T))
				fakeverbs.Fail(call, nth, syscall.ENOMEM)
				accepted := make(chan error, 1)
				go func() {
					p, err := b.ln.AcceptEndpoint(ctx, cfg)
					if err != nil {
						cancel() // the fake's active side waits for an answer
					}
					accepted <- errors.Join(err, p.Close())
				}()
				ep, err := cm.Dial(ctx, b.ln.Addr().String(), cm.Config{Context: b.vctx}, cfg)
				cancel()
				passive := b.outcome(accepted)
				if err != nil || passive != nil {
					failed++
				}
				require.NoError(b, ep.Close())
				require.Equal(b, before, objects(), "%s, call %d: %v, %v", call, nth, err, passive)
				b.until("librdmacm has freed its ids", func() bool {
					now := fakeverbs.Live()
					return now["id"] <= c["id"] && now["QP"] == c["QP"] && now["MR"] == c["MR"]
				})
			}
		}
		require.Greater(b, failed, 15)
	})
}

// TestEndpointAlloc: a Do, and a message from Send to Recv, allocate nothing on a device whose
// requests complete at once.
func TestEndpointAlloc(t *testing.T) {
	if race.Enabled {
		t.Skip("detectors allocate")
	}
	b := newBench(t, fakes[0].name, fakes[0].ip, cm.Config{})
	fakeverbs.Loopback(true)
	ctx := soon(b.T)
	a, p := b.endpoints(cm.EndpointConfig{Memory: 8},
		cm.EndpointConfig{Memory: 8, Access: verbs.AccessRemoteWrite, Offer: true})
	to, err := verbs.ParseRemote(a.PrivateData())
	require.NoError(t, err)
	sge, err := a.MR().SGE(0, 8)
	require.NoError(t, err)
	sgl, text, buf, n := []verbs.SGE{sge}, []byte("message"), make([]byte, 8), 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := a.Do(ctx, verbs.Write(to, sgl...)); err != nil {
			t.Fatal(err)
		}
		if err := a.Send(ctx, text); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Recv(ctx, buf); err != nil {
			t.Fatal(err)
		}
		if n++; n%30 < 10 { // so that credits are sent both with a Send and alone
			if err := p.Send(ctx, text); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Recv(ctx, buf); err != nil {
				t.Fatal(err)
			}
		}
	}))
}

// TestKernelCredit: receives are advertised by few Writes, and by none while there are no messages;
// a faster sender waits.
func TestKernelCredit(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.Loopback(true)
		ctx := soon(b.T)
		a, p := b.endpoints(cm.EndpointConfig{}, cm.EndpointConfig{MessageSize: 8})
		writes := func() (n int) {
			for _, wr := range fakeverbs.Posted() {
				// see TestKernelShutdownBoth
				if !wr.Recv && wr.Opcode == uint32(verbs.WRRDMAWrite) && len(wr.SGEs) == 1 {
					n++
				}
			}
			return n
		}
		require.Zero(b, writes())
		for n := range 120 { // one way
			require.NoError(b, a.Send(ctx, number(n)))
			require.NoError(b, takeNumber(ctx, p, n))
		}
		require.Equal(b, 120/12, writes())
		for n := range 80 { // back and forth
			require.NoError(b, a.Send(ctx, number(n)))
			require.NoError(b, takeNumber(ctx, p, n))
			require.NoError(b, p.Send(ctx, number(n)))
			require.NoError(b, takeNumber(ctx, a, n))
		}
		require.Equal(b, 120/12+2*80/8-1, writes(), "with a Send; the last one of a waits for the next")
		done := make(chan error, 1)
		go func() {
			for n := range 10000 {
				if err := a.Send(ctx, number(n)); err != nil {
					done <- err
					return
				}
			}
			done <- a.Shutdown(ctx)
		}()
		for n := range 10000 {
			if n == 0 {
				time.Sleep(time.Second)
			}
			require.NoError(b, takeNumber(ctx, p, n))
		}
		require.NoError(b, b.outcome(done))
		_, err := p.Recv(ctx, nil)
		require.ErrorIs(b, err, io.EOF)
		_, err = cm.Dial(ctx, b.ln.Addr().String(), cm.Config{Context: b.vctx},
			cm.EndpointConfig{Param: cm.ConnParam{PrivateData: make([]byte, 1000)}})
		require.ErrorContains(b, err, "28 bytes are the endpoint's")
	})
}
